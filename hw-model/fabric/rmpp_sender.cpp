// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/rmpp_sender.h"

#include <algorithm>
#include <utility>

#include "hw-model/ib/mad.h"
#include "hw-model/ib/sa.h"

namespace softhca::fabric {
namespace {

using ib::Rmpp;
using ib::SaMad;

/// Data bytes of one segment.
constexpr std::size_t kSegmentData = SaMad::data::size;
/// Segments that may be on their way at once, whatever window the receiver opens.
constexpr std::uint32_t kMaxWindow = 64;

}  // namespace

std::vector<RmppSender::Transfer>::iterator RmppSender::find(const MadAddress& peer,
                                                             std::uint64_t transaction) {
  return std::find_if(transfers_.begin(), transfers_.end(), [&](const Transfer& transfer) {
    return transfer.to.lid == peer.lid && transfer.to.qp == peer.qp &&
           transfer.transaction == transaction;
  });
}

bool RmppSender::start(const MadAddress& to, std::uint16_t slid, ib::MadIn response,
                       std::vector<std::uint8_t> data, Nanoseconds now) {
  if (data.size() > kMaxBytes) return false;
  const std::uint64_t transaction = ib::MadHeader::transaction_id::get(response.data());
  if (const auto old = find(to, transaction); old != transfers_.end()) transfers_.erase(old);
  if (transfers_.size() >= kMaxTransfers) return false;
  Transfer& transfer = transfers_.emplace_back();
  transfer.to = to;
  transfer.slid = slid;
  transfer.transaction = transaction;
  std::copy_n(response.begin(), SaMad::data::offset, transfer.headers.begin());
  transfer.segments = static_cast<std::uint32_t>(
      std::max<std::size_t>(1, (data.size() + kSegmentData - 1) / kSegmentData));
  transfer.data = std::move(data);
  send_window(transfer, now);
  return true;
}

void RmppSender::send_window(Transfer& transfer, Nanoseconds now) {
  const std::uint32_t last =
      std::min({transfer.window_last, transfer.segments, transfer.acknowledged + kMaxWindow});
  while (transfer.sent < last) send_segment(transfer, ++transfer.sent);
  transfer.deadline = now + kAckTimeout;
}

void RmppSender::send_segment(const Transfer& transfer, std::uint32_t number) {
  std::array<std::uint8_t, ib::kMadSize> mad = transfer.headers;
  const std::size_t from = std::size_t{number - 1} * kSegmentData;
  const std::size_t count = std::min(kSegmentData, transfer.data.size() - from);
  std::copy_n(transfer.data.begin() + static_cast<std::ptrdiff_t>(from), count,
              mad.begin() + SaMad::data::offset);
  const bool last = number == transfer.segments;
  Rmpp::version::set(mad.data(), 1);
  Rmpp::type::set(mad.data(), static_cast<std::uint8_t>(ib::RmppType::data));
  Rmpp::active::set(mad.data(), 1);
  Rmpp::first::set(mad.data(), number == 1 ? 1 : 0);
  Rmpp::last::set(mad.data(), last ? 1 : 0);
  Rmpp::segment_number::set(mad.data(), number);
  // The first segment tells the length of all, the last its own, with the class's header in each
  // (IBA 13.6.2.1).
  std::size_t length = 0;
  if (number == 1) {
    length = transfer.data.size() + transfer.segments * SaMad::segment_header;
  } else if (last) {
    length = count + SaMad::segment_header;
  }
  Rmpp::payload_length::set(mad.data(), length);
  outbox_.send(transfer.to, transfer.slid, mad);
}

void RmppSender::control(const MadAddress& from, ib::MadIn mad, Nanoseconds now) {
  const auto transfer = find(from, ib::MadHeader::transaction_id::get(mad.data()));
  if (transfer == transfers_.end()) return;
  if (static_cast<ib::RmppType>(Rmpp::type::get(mad.data())) != ib::RmppType::ack) {
    transfers_.erase(transfer);
    return;
  }
  const auto segment = static_cast<std::uint32_t>(Rmpp::segment_number::get(mad.data()));
  const auto window = static_cast<std::uint32_t>(Rmpp::new_window_last::get(mad.data()));
  // What was not sent cannot be acknowledged; what is old says nothing new (IBA 13.6.6.3).
  if (segment > transfer->sent || segment < transfer->acknowledged || window < segment) return;
  if (segment > transfer->acknowledged) transfer->tries_left = kTries;
  transfer->acknowledged = segment;
  transfer->window_last = std::max(transfer->window_last, window);
  if (segment == transfer->segments) {
    transfers_.erase(transfer);
    return;
  }
  send_window(*transfer, now);
}

std::size_t RmppSender::step(Nanoseconds now) {
  std::size_t moved = 0;
  for (Transfer& transfer : transfers_) {
    if (transfer.deadline > now) continue;
    ++moved;
    if (--transfer.tries_left == 0) continue;
    transfer.sent = transfer.acknowledged;
    send_window(transfer, now);
  }
  std::erase_if(transfers_, [](const Transfer& transfer) { return transfer.tries_left == 0; });
  return moved;
}

Nanoseconds RmppSender::next_deadline() const {
  Nanoseconds earliest = kNever;
  for (const Transfer& transfer : transfers_) earliest = std::min(earliest, transfer.deadline);
  return earliest;
}

}  // namespace softhca::fabric
