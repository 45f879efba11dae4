// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

/// Messages between the preloaded library inside an application (client) and a virtual host's
/// daemon, which plays the kernel. Both are built together; `kVersion` guards against a stale
/// daemon.
///
/// Transport: SOCK_SEQPACKET unix socket `<host dir>/kernel.sock`. open("/dev/infiniband/uverbsN")
/// connects; the connected socket *is* the application's command descriptor: poll, dup, fork, exec
/// and SCM_RIGHTS work as on a character device, and when its last copy closes the daemon sees
/// end-of-file and destroys what the context owned, as the kernel does at release.
///
/// A request is one packet: RequestHeader, body with its pieces, and as ancillary data first the
/// descriptor to reply on (one end of a SOCK_SEQPACKET pair that the calling process owns), then
/// the descriptors listed in the body. Requests on one command descriptor may come from several
/// threads and processes at once; each waits on its own reply descriptor. The daemon answers each
/// with one packet: ReplyHeader, body, descriptors.
///
/// Large bodies: a packet holds at most kMaxPacket bytes; the daemon refuses larger with EMSGSIZE.
namespace softhca::shim {

inline constexpr std::uint32_t kMagic = 0x41434853;  // "SHCA"
inline constexpr std::uint32_t kVersion = 6;
inline constexpr std::uint32_t kMaxPacket = 128 * 1024;
inline constexpr std::uint32_t kMaxFds = 16;
inline constexpr std::uint32_t kMaxPieces = 128;  ///< SharedPiece records of a request.

enum class RequestType : std::uint32_t {
  /// First packet on a new connection. Body: HelloBody. Descriptors: reply, /proc/self/mem (O_RDWR)
  /// of the
  /// opening process. Reply: HelloReply.
  hello = 1,
  /// RDMA_VERBS_IOCTL. Body: IoctlBody, ib_uverbs_ioctl_hdr (24 bytes), its attributes (16 bytes
  /// each), then
  /// for every attribute with len > 8 its len bytes (outputs too; what they hold does not matter),
  /// each padded
  /// to 8. Descriptor inputs (descriptors.h) are passed as SCM_RIGHTS, in attribute order.
  /// Reply body: ReplyItem records.
  ioctl = 2,
  /// write(2) on the command descriptor. Body: the buffer; descriptor inputs as for ioctl. Reply
  /// body: ReplyItem records whose
  /// `target` is an address in the application (the response pointer that the caller gave).
  write = 3,
  /// mmap(2). Body: MmapBody. Reply: MmapReply and the descriptor to map.
  mmap = 4,
  /// Open of a sysfs counter file or the like: asks the daemon to refresh its tree. No body.
  refresh = 5,
  /// First packet on a connection that only keeps the virtual host alive: the daemon ends when the
  /// last lease
  /// and the last context are gone, unless it was made persistent. No body, no descriptors but the
  /// reply.
  lease = 6,
  /// First packet on a connection of the command line tool. Body: ControlBody. Reply: ControlReply.
  control = 7,
  /// The calling process has discarded shared pages: the daemon gives those back that neither the
  /// process nor the device has any more. No body, no descriptors but the reply.
  sweep = 8,
};

struct RequestHeader {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  RequestType type{};
  std::uint32_t flags = 0;  ///< kFlag*
  std::int32_t pid = 0;     ///< Calling process (informative; the daemon trusts SO_PEERCRED).
  std::uint32_t body_length = 0;
  std::uint32_t pieces = 0;  ///< SharedPiece records at the end of the body; with kFlagShared.
  /// Of a registration: the record of the context's page (kMkeyStatesMmapOffset) that the key is to
  /// have, from 1 on; 0: none.
  std::uint32_t mkey_state = 0;
};
static_assert(sizeof(RequestHeader) == 32);

/// The ranges of a preceding `share` reply are now shared pages, or those that the reply would ask
/// for are already: the last descriptor of this request is the process's sealed sparse memfd, and
/// the pieces at the end of the body tell where in the file the pages lie.
inline constexpr std::uint32_t kFlagShared = 1;
/// The ranges of a preceding `share` reply cannot be made shared here (hugetlb, refused by the
/// process): the daemon then lets the device reach the queue through the /proc/self/mem descriptor
/// of hello, which is slow.
/// With kFlagShared: so is what the pieces do not have.
inline constexpr std::uint32_t kFlagUnshared = 2;
/// The calling process is not the one that opened the context (a child after fork, or one that was
/// given the descriptor): the last descriptor of this request, but for that of kFlagShared, is its
/// own /proc/self/mem (O_RDWR), and addresses in the request are of its memory.
inline constexpr std::uint32_t kFlagOwnMemory = 4;
/// The process itself gives back what pages this command leaves unused (ItemKind::unused_pages).
inline constexpr std::uint32_t kFlagGivesBack = 8;
/// The reply's answer to a descriptor attribute (new event channel and so on) cannot be installed
/// (EMFILE): not sent; reserved.

/// Whole pages at `address` of the process, which are pages of its memfd from `offset` on. Where
/// other pages take their place at the address, those lie elsewhere in the file: no part of it is
/// ever used for two memories.
struct SharedPiece {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t offset = 0;
};

/// A part of a memfd, whole pages.
struct FileRange {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

struct HelloBody {
  std::uint32_t device_index = 0;  ///< N of uverbsN.
  std::uint32_t reserved = 0;
};
struct HelloReply {
  std::uint32_t rdev_major = 0;  ///< What fstat() of the command descriptor must show.
  std::uint32_t rdev_minor = 0;
};

enum class ControlAction : std::uint32_t {
  none = 0,     ///< Only report.
  persist = 1,  ///< Stay although nobody uses the host (`softhca up`).
  release = 2,  ///< End as soon as nobody uses the host (`softhca down`).
  stop = 3,     ///< End now; open contexts see a fatal event.
};
struct ControlBody {
  ControlAction action{};
  std::uint32_t reserved = 0;
};
struct ControlReply {
  std::uint32_t pid = 0;
  std::uint32_t leases = 0;
  std::uint32_t contexts = 0;
  std::uint32_t persistent = 0;
  std::uint32_t device_alive = 0;  ///< 0: the emulator is gone; new opens fail.
  std::uint32_t reserved = 0;
};

struct IoctlBody {
  std::uint64_t command = 0;  ///< ioctl request number.
};

struct MmapBody {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint32_t prot = 0;
  std::uint32_t flags = 0;
};
struct MmapReply {
  std::uint64_t file_offset = 0;
};

enum class ReplyStatus : std::uint32_t {
  done = 0,
  /// Body: ShareRange records. The client makes these page-aligned ranges of its memory shared
  /// (swaps them for pages of its sparse memfd, keeping content), zeroes the 8 bytes at each
  /// `zero_at` that is not 0 (doorbell records, which other threads' swaps may have caught half
  /// way), and repeats the same request with kFlagShared.
  share = 1,
};

struct ReplyHeader {
  std::uint32_t magic = kMagic;
  ReplyStatus status{};
  std::int32_t error = 0;  ///< 0, or the errno the system call fails with.
  std::uint32_t items = 0;
};
static_assert(sizeof(ReplyHeader) == 16);

/// Other threads may use the range while it is being shared, and lose nothing.
inline constexpr std::uint64_t kShareInUse = 1;
/// Of the first or last page only a part is asked for: it may be left out (with kFlagUnshared) if
/// what else lies there must not be shared.
inline constexpr std::uint64_t kSharePartOfFirst = 2;
inline constexpr std::uint64_t kSharePartOfLast = 4;
/// The device takes no other memory: pages that were left private before are to be shared, too.
inline constexpr std::uint64_t kShareAll = 8;

struct ShareRange {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t zero_at = 0;
  std::uint64_t flags = 0;  ///< kShare*
};

enum class ItemKind : std::uint32_t {
  /// Copy `length` bytes that follow to the address in attribute `target`'s data pointer (ioctl; at
  /// most the
  /// attribute's len, and mark UVERBS_ATTR_F_VALID_OUTPUT), or to address `target` (write).
  bytes = 1,
  /// Store the 8 bytes that follow into the attribute's data field (new object handles).
  attr_data = 2,
  /// Install the next descriptor of the reply and store its number: in the attribute's data field
  /// (ioctl
  /// descriptor attributes).
  fd_attr = 3,
  /// Install the next descriptor and store its number as u32 at byte `value` of the item already
  /// given for
  /// `target` (legacy responses that hold a descriptor inside a struct).
  fd_in_bytes = 4,
  /// Give back the parts of the memfd with inode `target` that the FileRange records which follow
  /// name: neither keys nor mappings lead there any more. The daemon could, too; pages that the
  /// process itself frees are the next ones that it gets, while its processor's cache has them. Any
  /// other file: not meant.
  unused_pages = 5,
};
struct ReplyItem {
  ItemKind kind{};
  std::uint32_t value = 0;  ///< See fd_in_bytes.
  /// ioctl: attribute position (0..num_attrs-1); write: address; unused_pages: inode.
  std::uint64_t target = 0;
  std::uint32_t length = 0;    ///< Bytes that follow, padded to 8.
  std::uint32_t fd_flags = 0;  ///< O_CLOEXEC as wanted by the kernel's own interface.
};
static_assert(sizeof(ReplyItem) == 24);

/// mmap() offset of the doorbell hints, outside of what mlx5_ib_mmap and its entries use.
inline constexpr std::uint64_t kHintsMmapOffset = 0xffff00ULL << 12;
/// And of the context's MkeyStatePage (hw-model/runtime/mkey_state.h), which is made when it is
/// first mapped. EOPNOTSUPP: the device has no hints.
inline constexpr std::uint64_t kMkeyStatesMmapOffset = 0xffff01ULL << 12;

/// Driver-namespace ioctl method by which provider and preload ask the shim for the doorbell hints
/// of a context; a real kernel answers it with an error, and the caller then rings UARs only.
/// Attributes: kAttrHintsOffset out u64: mmap offset; kAttrHintsLength out u64; kAttrHintsWakeFd
/// out descriptor (an eventfd; write 8 bytes to wake the engine).
inline constexpr std::uint16_t kObjectSofthca = 0x1f00;
inline constexpr std::uint16_t kMethodGetDoorbellHints = 0x1f00;
inline constexpr std::uint16_t kAttrHintsOffset = 0x1f00;
inline constexpr std::uint16_t kAttrHintsLength = 0x1f01;
inline constexpr std::uint16_t kAttrHintsWakeFd = 0x1f02;

}  // namespace softhca::shim
