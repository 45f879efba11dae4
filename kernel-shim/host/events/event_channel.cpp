// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/events/event_channel.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace softhca::shim {

runtime::Result<std::pair<std::shared_ptr<EventChannel>, runtime::UniqueFd>> EventChannel::create(
    EventLoop& loop, std::size_t record_size) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return runtime::system_error(errno, "event pipe");
  runtime::UniqueFd read_end(ends[0]);
  runtime::UniqueFd write_end(ends[1]);
  if (::fcntl(write_end.get(), F_SETFL, O_NONBLOCK) != 0) {
    return runtime::system_error(errno, "event pipe");
  }
  std::shared_ptr<EventChannel> channel(new EventChannel(loop, std::move(write_end), record_size));
  channel->watch();
  return std::make_pair(std::move(channel), std::move(read_end));
}

EventChannel::EventChannel(EventLoop& loop, runtime::UniqueFd write_end, std::size_t record_size)
    : loop_(loop), write_end_(std::move(write_end)), record_size_(record_size) {
  struct stat status {};
  if (::fstat(write_end_.get(), &status) == 0) {
    device_ = status.st_dev;
    inode_ = status.st_ino;
  }
}

EventChannel::~EventChannel() {
  drop();
}

/// The last reader has closed: what was read counts, nothing more will be.
void EventChannel::close() {
  if (!write_end_) return;
  settle(unread_records());
  drop();
}

void EventChannel::end() {
  if (!write_end_) return;
  take_back_unread();
  drop();
}

void EventChannel::drop() {
  if (write_end_) loop_.remove(write_end_.get());
  write_end_.reset();
  sent_.clear();
  waiting_.clear();
}

/// From the start: that the readers have closed is told without anything being asked for.
void EventChannel::watch() {
  loop_.watch(write_end_.get(), 0, [weak = weak_from_this()](std::uint32_t events) {
    const std::shared_ptr<EventChannel> self = weak.lock();
    if (self == nullptr) return;
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
      self->close();
    } else {
      self->flush();
    }
  });
}

bool EventChannel::is_same(int fd) const {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) && status.st_dev == device_ &&
         status.st_ino == inode_;
}

std::size_t EventChannel::unread_records() const {
  int bytes = 0;
  if (::ioctl(write_end_.get(), FIONREAD, &bytes) != 0 || bytes < 0) return 0;
  return static_cast<std::size_t>(bytes) / record_size_;
}

/// All but the last `unread` of the sent records have been read.
void EventChannel::settle(std::size_t unread) {
  while (sent_.size() > unread) {
    if (sent_.front().reported != nullptr) ++*sent_.front().reported;
    sent_.pop_front();
  }
}

void EventChannel::post(std::span<const std::byte> record, std::uint32_t* reported) {
  if (!write_end_ || waiting_.size() >= kMaxWaiting) return;
  Record next;
  std::copy_n(record.begin(), std::min(record.size(), record_size_), next.bytes.begin());
  next.reported = reported;
  waiting_.push_back(next);
  flush();
}

void EventChannel::flush() {
  while (write_end_ && !waiting_.empty()) {
    const ssize_t written = ::write(write_end_.get(), waiting_.front().bytes.data(), record_size_);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) break;
    if (written < 0) {  // EPIPE: the last reader has closed.
      close();
      return;
    }
    sent_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  if (sent_.size() > 1024) settle(unread_records());
  wait_for_room(!waiting_.empty());
}

void EventChannel::wait_for_room(bool wanted) {
  if (wanted == waits_for_room_) return;
  waits_for_room_ = wanted;
  loop_.change(write_end_.get(), wanted ? std::uint32_t{EPOLLOUT} : 0);
}

/// Moves every unread record from the pipe back to the head of the queue. Readers race with this as
/// they do with the kernel's list lock: what they got was read, what we got was not.
void EventChannel::take_back_unread() {
  // A pipe can be opened again for reading through procfs; holding a read end all the time would
  // hide that the application closed its own.
  char name[64];
  std::snprintf(name, sizeof(name), "/proc/self/fd/%d", write_end_.get());
  const runtime::UniqueFd read_end(::open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!read_end) return;
  std::size_t unread = 0;
  std::array<std::byte, 4096> drained;
  for (;;) {
    const ssize_t got = ::read(read_end.get(), drained.data(), drained.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    unread += static_cast<std::size_t>(got) / record_size_;
  }
  settle(unread);
  waiting_.insert(waiting_.begin(), sent_.begin(), sent_.end());
  sent_.clear();
}

void EventChannel::retire(const std::uint32_t* reported) {
  if (!write_end_) return;
  const auto owned = [reported](const Record& record) { return record.reported == reported; };
  if (std::none_of(sent_.begin(), sent_.end(), owned) &&
      std::none_of(waiting_.begin(), waiting_.end(), owned)) {
    return;
  }
  take_back_unread();
  std::erase_if(waiting_, owned);
  std::erase_if(sent_, owned);  // Left only if the pipe could not be drained.
  flush();
}

}  // namespace softhca::shim
