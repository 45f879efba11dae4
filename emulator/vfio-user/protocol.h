// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

/// The vfio-user protocol, revision 0.0: messages on a unix stream socket by which a virtual
/// machine monitor (client) drives a PCI device that lives in another process (server). Source:
/// QEMU docs/interop/vfio-user.rst; the bodies of the information requests are those of
/// <linux/vfio.h>. All fields are in host byte order. Descriptors travel as SCM_RIGHTS with the
/// first byte of a message.
namespace softhca::vfio_user {

inline constexpr std::uint16_t kVersionMajor = 0;
inline constexpr std::uint16_t kVersionMinor = 0;

/// Defaults of capabilities that a peer does not name in its version message.
inline constexpr std::uint64_t kDefaultMaxDataTransfer = 1 << 20;  ///< max_data_xfer_size, bytes.
inline constexpr std::uint32_t kDefaultMaxMessageFds = 1;          ///< max_msg_fds.
inline constexpr std::uint32_t kDefaultMaxDmaMaps = 65535;         ///< max_dma_maps.
inline constexpr std::uint64_t kDefaultPageSizes = 4096;  ///< pgsizes, page sizes or'ed together.

/// Most descriptors that either side of this library takes with one message.
inline constexpr std::uint32_t kMaxMessageFds = 64;

enum class Command : std::uint16_t {
  version = 1,
  dma_map = 2,
  dma_unmap = 3,
  device_get_info = 4,
  device_get_region_info = 5,
  device_get_region_io_fds = 6,
  device_get_irq_info = 7,
  device_set_irqs = 8,
  region_read = 9,
  region_write = 10,
  dma_read = 11,   ///< Server to client.
  dma_write = 12,  ///< Server to client.
  device_reset = 13,
  region_write_multi = 15,
  device_feature = 16,
};

/// Header::flags.
inline constexpr std::uint32_t kTypeMask = 0xf;
inline constexpr std::uint32_t kTypeCommand = 0x0;
inline constexpr std::uint32_t kTypeReply = 0x1;
inline constexpr std::uint32_t kFlagNoReply =
    0x10;  ///< Posted: the sender reads no reply to this command.
inline constexpr std::uint32_t kFlagError =
    0x20;  ///< In a reply: `error` is valid, there is no body.

struct Header {
  std::uint16_t message_id = 0;  ///< Chosen by the sender of a command, echoed in its reply.
  Command command{};
  std::uint32_t message_size = 0;  ///< Header and body, bytes.
  std::uint32_t flags = 0;
  std::uint32_t error = 0;  ///< errno.
};
static_assert(sizeof(Header) == 16);

/// Followed by an optional JSON object, NUL-terminated.
struct VersionBody {
  std::uint16_t major = kVersionMajor;
  std::uint16_t minor = kVersionMinor;
};
static_assert(sizeof(VersionBody) == 4);

/// DmaMapBody::flags.
inline constexpr std::uint32_t kDmaRead = 1U << 0;
inline constexpr std::uint32_t kDmaWrite = 1U << 1;

/// The message carries at most one descriptor; without one the memory is reached by dma_read and
/// dma_write.
struct DmaMapBody {
  std::uint32_t argsz = sizeof(DmaMapBody);
  std::uint32_t flags = 0;
  std::uint64_t offset = 0;  ///< Of the first byte in the descriptor's file.
  std::uint64_t address = 0;
  std::uint64_t size = 0;
};
static_assert(sizeof(DmaMapBody) == 32);

struct DmaUnmapBody {
  std::uint32_t argsz = sizeof(DmaUnmapBody);
  std::uint32_t flags = 0;
  std::uint64_t address = 0;
  std::uint64_t size = 0;
};
static_assert(sizeof(DmaUnmapBody) == 24);

/// DmaUnmapBody::flags (linux/vfio.h).
inline constexpr std::uint32_t kUnmapGetDirtyBitmap = 1U << 0;
inline constexpr std::uint32_t kUnmapAll = 1U << 1;  ///< Every map; address and size are 0.

/// DeviceInfoBody::flags.
inline constexpr std::uint32_t kDeviceReset = 1U << 0;
inline constexpr std::uint32_t kDevicePci = 1U << 1;

struct DeviceInfoBody {
  std::uint32_t argsz = sizeof(DeviceInfoBody);
  std::uint32_t flags = 0;
  std::uint32_t num_regions = 0;
  std::uint32_t num_irqs = 0;
};
static_assert(sizeof(DeviceInfoBody) == 16);

/// RegionInfoBody::flags.
inline constexpr std::uint32_t kRegionRead = 1U << 0;
inline constexpr std::uint32_t kRegionWrite = 1U << 1;
inline constexpr std::uint32_t kRegionMmap = 1U << 2;
inline constexpr std::uint32_t kRegionCaps = 1U << 3;

/// Region indexes of a PCI device; device-specific ones follow from kPciNumRegions.
inline constexpr std::uint32_t kRegionBar0 = 0;
inline constexpr std::uint32_t kRegionRom = 6;
inline constexpr std::uint32_t kRegionConfig = 7;
inline constexpr std::uint32_t kRegionVga = 8;
inline constexpr std::uint32_t kPciNumRegions = 9;

/// The reply's argsz is the size of this and all capabilities; those are sent only if the request's
/// argsz leaves room for them.
struct RegionInfoBody {
  std::uint32_t argsz = sizeof(RegionInfoBody);
  std::uint32_t flags = 0;
  std::uint32_t index = 0;
  std::uint32_t cap_offset = 0;  ///< Of the first capability, from the start of this body.
  std::uint64_t size = 0;
  std::uint64_t offset = 0;  ///< Added to a mappable area's offset to give the offset for mmap().
};
static_assert(sizeof(RegionInfoBody) == 32);

inline constexpr std::uint16_t kCapSparseMmap = 1;
inline constexpr std::uint16_t kCapRegionType = 2;

struct CapHeader {
  std::uint16_t id = 0;
  std::uint16_t version = 1;
  std::uint32_t next = 0;  ///< Offset of the next capability from the start of the body, or 0.
};
static_assert(sizeof(CapHeader) == 8);

/// Followed by nr_areas MmapArea records.
struct CapSparseMmap {
  CapHeader header{kCapSparseMmap};
  std::uint32_t nr_areas = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(CapSparseMmap) == 16);

struct MmapArea {
  std::uint64_t offset = 0;  ///< Within the region.
  std::uint64_t size = 0;
};
static_assert(sizeof(MmapArea) == 16);

struct CapRegionType {
  CapHeader header{kCapRegionType};
  std::uint32_t type = 0;
  std::uint32_t subtype = 0;
};
static_assert(sizeof(CapRegionType) == 16);

/// The reply is followed by `count` IoEventFdBody records.
struct RegionIoFdsBody {
  std::uint32_t argsz = sizeof(RegionIoFdsBody);
  std::uint32_t flags = 0;
  std::uint32_t index = 0;
  std::uint32_t count = 0;
};
static_assert(sizeof(RegionIoFdsBody) == 16);

inline constexpr std::uint32_t kIoFdIoEventFd = 0;

struct IoEventFdBody {
  std::uint64_t offset = 0;  ///< Within the region.
  std::uint64_t size = 0;    ///< Access size, or 0 for any.
  std::uint32_t fd_index = 0;
  std::uint32_t type = kIoFdIoEventFd;
  std::uint32_t flags = 0;
  std::uint32_t padding = 0;
  std::uint64_t datamatch = 0;
};
static_assert(sizeof(IoEventFdBody) == 40);

/// IrqInfoBody::flags.
inline constexpr std::uint32_t kIrqEventFd = 1U << 0;
inline constexpr std::uint32_t kIrqMaskable = 1U << 1;
inline constexpr std::uint32_t kIrqAutomasked = 1U << 2;
inline constexpr std::uint32_t kIrqNoResize = 1U << 3;

/// Interrupt indexes of a PCI device.
inline constexpr std::uint32_t kIrqIntx = 0;
inline constexpr std::uint32_t kIrqMsi = 1;
inline constexpr std::uint32_t kIrqMsix = 2;
inline constexpr std::uint32_t kIrqErr = 3;
inline constexpr std::uint32_t kIrqReq = 4;
inline constexpr std::uint32_t kPciNumIrqs = 5;

struct IrqInfoBody {
  std::uint32_t argsz = sizeof(IrqInfoBody);
  std::uint32_t flags = 0;
  std::uint32_t index = 0;
  std::uint32_t count = 0;
};
static_assert(sizeof(IrqInfoBody) == 16);

/// SetIrqsBody::flags: one data bit and one action bit.
inline constexpr std::uint32_t kIrqSetDataNone = 1U << 0;
inline constexpr std::uint32_t kIrqSetDataBool = 1U << 1;
inline constexpr std::uint32_t kIrqSetDataEventFd = 1U << 2;
inline constexpr std::uint32_t kIrqSetDataMask = 0x07;
inline constexpr std::uint32_t kIrqSetActionMask = 1U << 3;
inline constexpr std::uint32_t kIrqSetActionUnmask = 1U << 4;
inline constexpr std::uint32_t kIrqSetActionTrigger = 1U << 5;
inline constexpr std::uint32_t kIrqSetActionBits = 0x38;

/// With kIrqSetDataBool followed by `count` bytes; with kIrqSetDataEventFd the message carries
/// `count` eventfds, or none to detach the range.
struct SetIrqsBody {
  std::uint32_t argsz = sizeof(SetIrqsBody);
  std::uint32_t flags = 0;
  std::uint32_t index = 0;
  std::uint32_t start = 0;
  std::uint32_t count = 0;
};
static_assert(sizeof(SetIrqsBody) == 20);

/// Followed by the data in a write and in the reply to a read.
struct RegionAccessBody {
  std::uint64_t offset = 0;
  std::uint32_t region = 0;
  std::uint32_t count = 0;
};
static_assert(sizeof(RegionAccessBody) == 16);

/// Followed by `count` RegionWriteRecord.
struct RegionWriteMultiBody {
  std::uint64_t count = 0;
};
static_assert(sizeof(RegionWriteMultiBody) == 8);

struct RegionWriteRecord {
  std::uint64_t offset = 0;
  std::uint32_t region = 0;
  std::uint32_t count = 0;  ///< 1 to 8.
  std::uint8_t data[8] = {};
};
static_assert(sizeof(RegionWriteRecord) == 24);

/// Followed by the data in a write and in the reply to a read.
struct DmaAccessBody {
  std::uint64_t address = 0;
  std::uint64_t count = 0;
};
static_assert(sizeof(DmaAccessBody) == 16);

/// Largest message that is accepted for a data transfer limit of `max_data` bytes. Version data and
/// lists of interrupts are far below it.
constexpr std::uint64_t max_message_size(std::uint64_t max_data) {
  return sizeof(Header) + sizeof(DmaAccessBody) + max_data;
}

}  // namespace softhca::vfio_user
