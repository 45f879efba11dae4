// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "fake_daemon.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fake_regions.h"
#include "hw-model/runtime/doorbell_hints.h"
#include "kernel-shim/preload/ioctl_layout.h"
#include "kernel-shim/protocol/protocol.h"

namespace softhca::shim::test {
namespace {

using preload::IoctlAttribute;
using preload::IoctlHeader;
using Bytes = std::vector<unsigned char>;

struct Received {
  RequestHeader header;
  Bytes body;
  std::vector<int> fds;
};

void close_all(const std::vector<int>& fds) {
  for (const int fd : fds) ::close(fd);
}

bool receive(int socket, Received& request) {
  Bytes packet(kMaxPacket);
  alignas(cmsghdr) unsigned char control[CMSG_SPACE(sizeof(int) * kMaxFds)];
  iovec piece{packet.data(), packet.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t length = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (length < static_cast<ssize_t>(sizeof(RequestHeader))) return false;
  std::memcpy(&request.header, packet.data(), sizeof(request.header));
  request.body.assign(packet.begin() + sizeof(RequestHeader), packet.begin() + length);
  request.fds.clear();
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr) return false;
  request.fds.resize((rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  std::memcpy(request.fds.data(), CMSG_DATA(rights), request.fds.size() * sizeof(int));
  return request.header.body_length == request.body.size();
}

/// A reply under construction.
class Answer {
 public:
  ReplyHeader header{kMagic, ReplyStatus::done, 0, 0};

  void raw(const void* data, std::size_t length) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    body_.insert(body_.end(), bytes, bytes + length);
    body_.resize((body_.size() + 7) / 8 * 8);
  }
  void item(ItemKind kind, std::uint64_t target, const void* data, std::size_t length) {
    ReplyItem item{kind, 0, target, static_cast<std::uint32_t>(length), O_CLOEXEC};
    raw(&item, sizeof(item));
    raw(data, length);
    ++header.items;
  }
  void fd(int fd) { fds_.push_back(fd); }

  void send(int reply_fd) {
    alignas(cmsghdr) unsigned char control[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
    iovec pieces[2] = {{&header, sizeof(header)}, {body_.data(), body_.size()}};
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    if (!fds_.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds_.size() * sizeof(int));
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds_.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), fds_.data(), fds_.size() * sizeof(int));
    }
    ::sendmsg(reply_fd, &message, MSG_NOSIGNAL);
    close_all(fds_);
  }

 private:
  Bytes body_;
  std::vector<int> fds_;
};

/// An ioctl request taken apart.
struct Ioctl {
  IoctlHeader header{};
  std::vector<IoctlAttribute> attributes;
  std::vector<Bytes> pointed;  ///< What each attribute of more than 8 bytes points to.
};

Ioctl parse(const Bytes& body) {
  Ioctl call;
  std::size_t at = sizeof(IoctlBody);
  std::memcpy(&call.header, body.data() + at, sizeof(IoctlHeader));
  at += sizeof(IoctlHeader);
  call.attributes.resize(call.header.num_attrs);
  std::memcpy(call.attributes.data(), body.data() + at,
              call.attributes.size() * sizeof(IoctlAttribute));
  at += call.attributes.size() * sizeof(IoctlAttribute);
  for (const IoctlAttribute& attribute : call.attributes) {
    const std::size_t length = attribute.len > 8 ? attribute.len : 0;
    call.pointed.emplace_back(body.begin() + static_cast<std::ptrdiff_t>(at),
                              body.begin() + static_cast<std::ptrdiff_t>(at + length));
    at += (length + 7) / 8 * 8;
  }
  return call;
}

int pipe_that_holds(const char* text) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return -1;
  const ssize_t written = ::write(ends[1], text, std::strlen(text));
  ::close(ends[1]);
  return written > 0 ? ends[0] : -1;
}

/// Where the page at `address` lies in the request's file.
off_t place_of(const Received& request, std::uint64_t address) {
  std::vector<SharedPiece> pieces(request.header.pieces);
  const std::size_t length = pieces.size() * sizeof(SharedPiece);
  std::memcpy(pieces.data(), request.body.data() + request.body.size() - length, length);
  for (const SharedPiece& piece : pieces) {
    if (address < piece.address || address - piece.address >= piece.length) continue;
    return static_cast<off_t>(piece.offset + (address - piece.address));
  }
  return -1;
}

void share(const Received& request, const Ioctl& call, Answer& answer) {
  const std::uint64_t address = call.attributes[0].data;
  if ((request.header.flags & (kFlagShared | kFlagUnshared)) == 0) {
    const ShareRange range{address, call.attributes[1].data, call.attributes[2].data,
                           call.attributes[4].data};
    answer.header.status = ReplyStatus::share;
    answer.raw(&range, sizeof(range));
    return;
  }
  ShareResult result{request.header.flags, 0, 0};
  if ((request.header.flags & kFlagShared) != 0) {
    const int file = request.fds.back();
    if ((::fcntl(file, F_GET_SEALS) & F_SEAL_SHRINK) == 0) answer.header.error = EPERM;
    const off_t offset = place_of(request, address);
    std::uint64_t value = 0;
    if (::pread(file, &value, sizeof(value), offset) != sizeof(value)) answer.header.error = EIO;
    result.value = value++;
    result.offset = static_cast<std::uint64_t>(offset);
    if (::pwrite(file, &value, sizeof(value), offset) != sizeof(value)) answer.header.error = EIO;
  }
  answer.item(ItemKind::bytes, 3, &result, sizeof(result));
}

void serve_ioctl(const Received& request, int memory, FakeRegions& regions, Answer& answer) {
  const Ioctl call = parse(request.body);
  if (call.header.object_id == UVERBS_OBJECT_MR &&
      call.header.method_id == UVERBS_METHOD_MR_DESTROY) {
    answer.header.error = regions.deregister(static_cast<std::uint32_t>(call.attributes[0].data));
    return;
  }
  if (call.header.object_id == 3 && call.header.method_id == 0) {  // CQ with a channel
    const bool written = request.fds.size() == 2 && ::write(request.fds[1], "x", 1) == 1;
    answer.header.error = written ? 0 : EBADF;
    return;
  }
  if (call.header.object_id == kObjectSofthca) {
    const std::uint64_t length = kDoorbellHintsSize;
    const std::uint64_t offset = 0;
    answer.item(ItemKind::bytes, 0, &offset, sizeof(offset));
    answer.item(ItemKind::bytes, 1, &length, sizeof(length));
    answer.item(ItemKind::fd_attr, 2, nullptr, 0);
    answer.fd(pipe_that_holds("!"));
    return;
  }
  switch (call.header.method_id) {
    case kLateEcho:
      ::usleep(290000);
      [[fallthrough]];
    case kSlowEcho:
      ::usleep(10000);
      [[fallthrough]];
    case kEcho:
      answer.item(ItemKind::bytes, 1, call.pointed[0].data(), call.pointed[0].size());
      break;
    case kNewHandle:
      answer.item(ItemKind::attr_data, 0, &kHandle, sizeof(kHandle));
      break;
    case kNewDescriptor:
      answer.item(ItemKind::fd_attr, 0, nullptr, 0);
      answer.fd(pipe_that_holds("hi"));
      break;
    case kFailBusy:
      answer.header.error = EBUSY;
      break;
    case kShare:
      share(request, call, answer);
      break;
    case kUnused: {
      const FileRange range{call.attributes[0].data, call.attributes[1].data};
      answer.item(ItemKind::unused_pages, call.attributes[2].data, &range, sizeof(range));
      break;
    }
    case kDie:
      ::_exit(0);
    case kReadMemory: {
      std::uint64_t value = 0;
      const auto offset = static_cast<off_t>(call.attributes[0].data);
      const bool own = (request.header.flags & kFlagOwnMemory) != 0;
      if (::pread(own ? request.fds.back() : memory, &value, sizeof(value), offset) !=
          sizeof(value)) {
        answer.header.error = EFAULT;
      }
      answer.item(ItemKind::bytes, 1, &value, sizeof(value));
      break;
    }
    case kRegions: {
      const RegionCounts counts = regions.counts();
      answer.item(ItemKind::bytes, 0, &counts, sizeof(counts));
      break;
    }
    case kHugeOutput: {
      const Bytes bytes(call.attributes[0].len, kHugeByte);
      answer.item(ItemKind::bytes, 0, bytes.data(), bytes.size());
      break;
    }
    default:
      answer.header.error = EPROTONOSUPPORT;
  }
}

/// False: it is no command on regions.
bool serve_region(const Received& request, FakeRegions& regions, Answer& answer) {
  std::uint32_t number = 0;
  std::uint32_t handle = 0;
  std::memcpy(&number, request.body.data(), sizeof(number));
  if (request.body.size() >= 12) std::memcpy(&handle, request.body.data() + 8, sizeof(handle));
  switch (number) {
    case preload::RegistrationCommand::kNumber: {
      preload::RegistrationCommand command;
      if (request.body.size() < 8 + sizeof(command)) return false;
      std::memcpy(&command, request.body.data() + 8, sizeof(command));
      preload::RegistrationAnswer made;
      answer.header.error = regions.register_region(command, request.header.mkey_state, made);
      if (answer.header.error == 0) {
        answer.item(ItemKind::bytes, command.response, &made, sizeof(made));
      }
      return true;
    }
    case kDeallocPd:
      answer.header.error = regions.end_domain(handle);
      return true;
    case kReregMr:
      std::memcpy(&handle, request.body.data() + 16, sizeof(handle));
      answer.header.error = regions.change(handle);
      return true;
    case kDeregMr:
      answer.header.error = regions.deregister(handle);
      return true;
    default:
      return false;
  }
}

/// A command of the write form: its response address lies behind the 8-byte header.
void serve_write(const Received& request, FakeRegions& regions, Answer& answer) {
  if (serve_region(request, regions, answer)) return;
  std::uint64_t response = 0;
  std::memcpy(&response, request.body.data() + 8, sizeof(response));
  answer.item(ItemKind::bytes, response, &kHandle, sizeof(kHandle));
}

void serve_mmap(const Received& request, FakeRegions& regions, Answer& answer) {
  MmapBody body;
  std::memcpy(&body, request.body.data(), sizeof(body));
  if (const int shown = regions.file_at(body.offset); shown >= 0) {
    const MmapReply reply{0};
    answer.raw(&reply, sizeof(reply));
    answer.fd(shown);
    return;
  }
  const int file = ::memfd_create("mapped", MFD_CLOEXEC);
  std::vector<std::uint64_t> content(kMappedFileSize / 8);
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = i * 8;
  if (::write(file, content.data(), kMappedFileSize) != static_cast<ssize_t>(kMappedFileSize)) {
    answer.header.error = EIO;
  }
  if (body.length == kDoorbellHintsSize && ::ftruncate(file, kDoorbellHintsSize) != 0) {
    answer.header.error = EIO;
  }
  const MmapReply reply{body.offset};
  answer.raw(&reply, sizeof(reply));
  answer.fd(file);
}

/// The counter of the tree gets one more digit at each refresh.
void write_counter() {
  const char* folder = std::getenv("SOFTHCA_HOST_DIR");
  if (folder == nullptr) std::abort();
  const std::string path = std::string(folder) + kCounterPath;
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (::write(fd, "1", 1) != 1) std::abort();
  ::close(fd);
}

void serve_connection(int socket) {
  int memory = -1;
  FakeRegions regions;
  Received request;
  while (receive(socket, request)) {
    Answer answer;
    switch (request.header.type) {
      case RequestType::hello: {
        HelloBody body;
        std::memcpy(&body, request.body.data(), sizeof(body));
        if (body.device_index != 0) answer.header.error = ENXIO;
        memory = ::fcntl(request.fds.at(1), F_DUPFD_CLOEXEC, 0);
        const HelloReply reply{kRdevMajor, kRdevMinor};
        answer.raw(&reply, sizeof(reply));
        break;
      }
      case RequestType::ioctl:
        serve_ioctl(request, memory, regions, answer);
        break;
      case RequestType::write:
        serve_write(request, regions, answer);
        break;
      case RequestType::mmap:
        serve_mmap(request, regions, answer);
        break;
      case RequestType::refresh:
        write_counter();
        break;
      default:
        answer.header.error = EINVAL;
    }
    answer.send(request.fds[0]);
    close_all(request.fds);
  }
}

[[noreturn]] void serve(int listener) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGCHLD, SIG_IGN);
  while (true) {
    const int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) continue;
    if (::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(listener);
      serve_connection(socket);
      ::_exit(0);
    }
    ::close(socket);
  }
}

}  // namespace

void start_fake_daemon(const std::string& host_dir) {
  const int folder = ::open(host_dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  const std::string name = "/proc/self/fd/" + std::to_string(folder) + "/kernel.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  const int listener = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener, 64) != 0) {
    std::abort();
  }
  if (::fork() == 0) serve(listener);
  ::close(listener);
  ::close(folder);
}

}  // namespace softhca::shim::test
