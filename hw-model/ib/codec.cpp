// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/ib/codec.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <boost/crc.hpp>
#include <cstring>

#include "hw-model/ib/opcodes.h"

namespace softhca::ib {
namespace {

constexpr std::uint8_t kLnhLocal = 2;   // LRH.LNH: BTH follows (IBA 7.7.2).
constexpr std::uint8_t kLnhGlobal = 3;  // GRH, then BTH.
constexpr std::uint8_t kGrhNextHeaderBth = 0x1b;
constexpr std::size_t kMinWireSize = kLrhSize + kBthSize + kIcrcSize + kVcrcSize;

/// Writes big-endian values one after another into memory that is known to be large enough.
class Writer {
 public:
  explicit Writer(std::byte* to) : to_(to) {}
  void u8(std::uint32_t value) { *to_++ = static_cast<std::byte>(value); }
  void u16(std::uint32_t value) {
    u8(value >> 8);
    u8(value);
  }
  void u32(std::uint32_t value) {
    u16(value >> 16);
    u16(value);
  }
  void u64(std::uint64_t value) {
    u32(static_cast<std::uint32_t>(value >> 32));
    u32(static_cast<std::uint32_t>(value));
  }
  void bytes(const void* from, std::size_t length) {
    if (length != 0) std::memcpy(to_, from, length);
    to_ += length;
  }
  void zeros(std::size_t length) {
    std::fill_n(to_, length, std::byte{0});
    to_ += length;
  }
  std::byte* position() const { return to_; }

 private:
  std::byte* to_;
};

/// Reads big-endian values; the caller has checked with left() that they are there.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> from) : from_(from) {}
  std::size_t left() const { return from_.size(); }
  std::uint8_t u8() {
    const auto value = static_cast<std::uint8_t>(from_.front());
    from_ = from_.subspan(1);
    return value;
  }
  std::uint16_t u16() {
    const std::uint16_t high = u8();
    return static_cast<std::uint16_t>(high << 8 | u8());
  }
  std::uint32_t u32() {
    const std::uint32_t high = u16();
    return high << 16 | u16();
  }
  std::uint64_t u64() {
    const std::uint64_t high = u32();
    return high << 32 | u32();
  }
  void bytes(void* to, std::size_t length) {
    std::memcpy(to, from_.data(), length);
    from_ = from_.subspan(length);
  }
  std::span<const std::byte> rest() const { return from_; }

 private:
  std::span<const std::byte> from_;
};

std::size_t pad_of(std::size_t payload) {
  return (4 - payload % 4) % 4;
}

void write_lrh(Writer& writer, const Packet& packet, std::size_t words) {
  const Path& path = packet.path;
  writer.u8(packet.vl << 4U & 0xf0U);  // LVer 0
  writer.u8((path.sl & 0xfU) << 4 | (path.has_grh ? kLnhGlobal : kLnhLocal));
  writer.u16(path.dlid);
  writer.u16(static_cast<std::uint32_t>(words));
  writer.u16(path.slid);
}

void write_grh(Writer& writer, const Grh& grh, std::size_t payload_length) {
  writer.u32(6U << 28 | static_cast<std::uint32_t>(grh.traffic_class) << 20 |
             (grh.flow_label & 0xfffffU));
  writer.u16(static_cast<std::uint32_t>(payload_length));
  writer.u8(kGrhNextHeaderBth);
  writer.u8(grh.hop_limit);
  writer.bytes(grh.sgid.data(), grh.sgid.size());
  writer.bytes(grh.dgid.data(), grh.dgid.size());
}

void write_bth(Writer& writer, const Bth& bth, std::size_t pad) {
  writer.u8(bth.opcode);
  writer.u8((bth.solicited ? 0x80U : 0U) | (bth.migrated ? 0x40U : 0U) |
            static_cast<std::uint32_t>(pad) << 4);
  writer.u16(bth.pkey);
  writer.u32((bth.fecn ? 0x80000000U : 0U) | (bth.becn ? 0x40000000U : 0U) |
             (bth.dest_qp & 0xffffffU));
  writer.u32((bth.ack_req ? 0x80000000U : 0U) | (bth.psn & 0xffffffU));
}

void write_extension_headers(Writer& writer, const Packet& packet) {
  const std::uint8_t opcode = packet.bth.opcode;
  if (has_rdeth(opcode)) writer.u32(0);
  if (has_deth(opcode)) {
    writer.u32(packet.deth.qkey);
    writer.u32(packet.deth.src_qp & 0xffffffU);
  }
  if (has_xrceth(opcode)) writer.u32(packet.xrc_srqn & 0xffffffU);
  if (has_reth(opcode)) {
    writer.u64(packet.reth.va);
    writer.u32(packet.reth.rkey);
    writer.u32(packet.reth.length);
  }
  if (has_atomic_eth(opcode)) {
    writer.u64(packet.atomic_eth.va);
    writer.u32(packet.atomic_eth.rkey);
    writer.u64(packet.atomic_eth.swap_or_add);
    writer.u64(packet.atomic_eth.compare);
  }
  if (has_aeth(opcode)) {
    writer.u32(static_cast<std::uint32_t>(packet.aeth.syndrome) << 24 |
               (packet.aeth.msn & 0xffffffU));
  }
  if (has_atomic_ack_eth(opcode)) writer.u64(packet.atomic_ack);
  if (has_immediate(opcode)) writer.u32(packet.immediate);
  if (has_ieth(opcode)) writer.u32(packet.invalidate_key);
}

void read_extension_headers(Reader& reader, Packet& packet) {
  const std::uint8_t opcode = packet.bth.opcode;
  if (has_deth(opcode)) {
    packet.deth.qkey = reader.u32();
    packet.deth.src_qp = reader.u32() & 0xffffffU;
  }
  if (has_xrceth(opcode)) packet.xrc_srqn = reader.u32() & 0xffffffU;
  if (has_reth(opcode)) {
    packet.reth.va = reader.u64();
    packet.reth.rkey = reader.u32();
    packet.reth.length = reader.u32();
  }
  if (has_atomic_eth(opcode)) {
    packet.atomic_eth.va = reader.u64();
    packet.atomic_eth.rkey = reader.u32();
    packet.atomic_eth.swap_or_add = reader.u64();
    packet.atomic_eth.compare = reader.u64();
  }
  if (has_aeth(opcode)) {
    const std::uint32_t word = reader.u32();
    packet.aeth = {static_cast<std::uint8_t>(word >> 24), word & 0xffffffU};
  }
  if (has_atomic_ack_eth(opcode)) packet.atomic_ack = reader.u64();
  if (has_immediate(opcode)) packet.immediate = reader.u32();
  if (has_ieth(opcode)) packet.invalidate_key = reader.u32();
}

/// Reads the GRH; `length` is what GRH.PayLen must say: bytes after the GRH up to and with the
/// ICRC.
DecodeStatus read_grh(Reader& reader, std::size_t length, Grh& grh) {
  const std::uint32_t word = reader.u32();
  const std::size_t payload_length = reader.u16();
  const std::uint8_t next_header = reader.u8();
  grh.traffic_class = static_cast<std::uint8_t>(word >> 20);
  grh.flow_label = word & 0xfffffU;
  grh.hop_limit = reader.u8();
  reader.bytes(grh.sgid.data(), grh.sgid.size());
  reader.bytes(grh.dgid.data(), grh.dgid.size());
  if (word >> 28 != 6 || next_header != kGrhNextHeaderBth) return DecodeStatus::bad_grh;
  return payload_length == length ? DecodeStatus::ok : DecodeStatus::bad_length;
}

/// Reads the BTH; `pad` receives PadCnt.
DecodeStatus read_bth(Reader& reader, Bth& bth, std::size_t& pad) {
  bth.opcode = reader.u8();
  const std::uint8_t flags = reader.u8();
  bth.solicited = (flags & 0x80) != 0;
  bth.migrated = (flags & 0x40) != 0;
  pad = flags >> 4 & 3;
  bth.pkey = reader.u16();
  const std::uint32_t qp_word = reader.u32();
  bth.fecn = (qp_word & 0x80000000U) != 0;
  bth.becn = (qp_word & 0x40000000U) != 0;
  bth.dest_qp = qp_word & 0xffffffU;
  const std::uint32_t psn_word = reader.u32();
  bth.ack_req = (psn_word & 0x80000000U) != 0;
  bth.psn = psn_word & 0xffffffU;
  if ((flags & 0xf) != 0) return DecodeStatus::bad_transport_version;
  if (!is_known(bth.opcode) || has_rdeth(bth.opcode)) return DecodeStatus::unknown_opcode;
  return DecodeStatus::ok;
}

std::uint16_t stored_vcrc(std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data() + bytes.size() - kVcrcSize;
  return static_cast<std::uint16_t>(static_cast<unsigned>(at[0]) | static_cast<unsigned>(at[1])
                                                                       << 8);
}

std::uint32_t stored_icrc(std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data() + bytes.size() - kVcrcSize - kIcrcSize;
  return static_cast<std::uint32_t>(at[0]) | static_cast<std::uint32_t>(at[1]) << 8 |
         static_cast<std::uint32_t>(at[2]) << 16 | static_cast<std::uint32_t>(at[3]) << 24;
}

}  // namespace

std::string_view to_string(DecodeStatus status) {
  switch (status) {
    case DecodeStatus::ok:
      return "ok";
    case DecodeStatus::truncated:
      return "truncated";
    case DecodeStatus::bad_length:
      return "length fields disagree with the size";
    case DecodeStatus::bad_vcrc:
      return "variant CRC error";
    case DecodeStatus::bad_icrc:
      return "invariant CRC error";
    case DecodeStatus::bad_link_version:
      return "unknown link version";
    case DecodeStatus::not_iba_transport:
      return "raw packet";
    case DecodeStatus::bad_grh:
      return "invalid global route header";
    case DecodeStatus::bad_transport_version:
      return "unknown transport version";
    case DecodeStatus::unknown_opcode:
      return "unknown opcode";
    case DecodeStatus::bad_pad:
      return "more pad than payload";
    case DecodeStatus::unexpected_payload:
      return "payload where the opcode has none";
  }
  return "?";
}

std::size_t encoded_size(const Packet& packet) {
  const std::size_t payload = packet.payload.size();
  return kLrhSize + (packet.path.has_grh ? kGrhSize : 0) +
         (is_known(packet.bth.opcode) ? transport_header_size(packet.bth.opcode) : kBthSize) +
         payload + pad_of(payload) + kIcrcSize + kVcrcSize;
}

bool encode(const Packet& packet, std::vector<std::byte>& out) {
  out.clear();
  const std::size_t size = encoded_size(packet);
  if (size > kMaxWireSize) return false;
  out.resize(size);
  Writer writer(out.data());
  const std::size_t pad = pad_of(packet.payload.size());
  write_lrh(writer, packet, (size - kVcrcSize) / 4);
  if (packet.path.has_grh) {
    write_grh(writer, packet.path.grh, size - kLrhSize - kGrhSize - kVcrcSize);
  }
  write_bth(writer, packet.bth, pad);
  write_extension_headers(writer, packet);
  writer.bytes(packet.payload.data(), packet.payload.size());
  writer.zeros(pad);
  const std::uint32_t icrc = compute_icrc({out.data(), writer.position()});
  for (unsigned i = 0; i < kIcrcSize; ++i) writer.u8(icrc >> 8 * i);
  refresh_vcrc(out);
  return true;
}

DecodeStatus decode(std::span<const std::byte> bytes, Packet& packet) {
  if (bytes.size() < kMinWireSize) return DecodeStatus::truncated;
  // Damage on this link comes first: with it no field can be believed.
  if (compute_vcrc(bytes.first(bytes.size() - kVcrcSize)) != stored_vcrc(bytes)) {
    return DecodeStatus::bad_vcrc;
  }
  Reader reader(bytes.first(bytes.size() - kIcrcSize - kVcrcSize));
  const std::uint8_t vl_version = reader.u8();
  const std::uint8_t sl_lnh = reader.u8();
  packet.vl = vl_version >> 4;
  packet.path = {};
  packet.path.sl = sl_lnh >> 4;
  packet.path.dlid = reader.u16();
  const std::size_t words = reader.u16() & 0x7ffU;
  packet.path.slid = reader.u16();
  if ((vl_version & 0xf) != 0) return DecodeStatus::bad_link_version;
  if ((sl_lnh & 3) < kLnhLocal) return DecodeStatus::not_iba_transport;
  packet.path.has_grh = (sl_lnh & 3) == kLnhGlobal;
  if (words * 4 + kVcrcSize != bytes.size()) return DecodeStatus::bad_length;
  if (packet.path.has_grh) {
    if (reader.left() < kGrhSize + kBthSize) return DecodeStatus::truncated;
    const auto status = read_grh(reader, reader.left() - kGrhSize + kIcrcSize, packet.path.grh);
    if (status != DecodeStatus::ok) return status;
  }
  if (compute_icrc(bytes.first(bytes.size() - kIcrcSize - kVcrcSize)) != stored_icrc(bytes)) {
    return DecodeStatus::bad_icrc;
  }
  std::size_t pad = 0;
  const auto status = read_bth(reader, packet.bth, pad);
  if (status != DecodeStatus::ok) return status;
  if (reader.left() < transport_header_size(packet.bth.opcode) - kBthSize) {
    return DecodeStatus::truncated;
  }
  read_extension_headers(reader, packet);
  if (reader.left() < pad) return DecodeStatus::bad_pad;
  const auto payload = reader.rest().first(reader.left() - pad);
  if (!payload.empty() && !has_payload(packet.bth.opcode)) return DecodeStatus::unexpected_payload;
  packet.payload.assign(payload.begin(), payload.end());
  return DecodeStatus::ok;
}

std::uint32_t compute_icrc(std::span<const std::byte> bytes) {
  // The headers with variant fields are copied to be masked: LRH, GRH and BTH.
  std::array<std::uint8_t, kLrhSize + kGrhSize + kBthSize> head{};
  const bool global = bytes.size() > 1 && (static_cast<unsigned>(bytes[1]) & 3U) == kLnhGlobal;
  const std::size_t head_size =
      std::min(bytes.size(), kLrhSize + (global ? kGrhSize : 0) + kBthSize);
  if (head_size != 0) std::memcpy(head.data(), bytes.data(), head_size);
  std::size_t bth = kLrhSize;
  if (global) {
    // A router replaces the whole LRH; GRH: TClass, FlowLabel, HopLmt.
    std::fill_n(head.begin(), kLrhSize, std::uint8_t{0xff});
    head[kLrhSize] |= 0x0f;
    std::fill_n(head.begin() + kLrhSize + 1, 3, std::uint8_t{0xff});
    head[kLrhSize + 7] = 0xff;
    bth += kGrhSize;
  } else {
    head[0] |= 0xf0;  // VL
  }
  head[bth + 4] = 0xff;  // BTH.Resv8a, with FECN and BECN
  uLong crc = crc32(0, head.data(), static_cast<uInt>(head_size));
  const auto rest = bytes.subspan(head_size);
  crc = crc32(crc, reinterpret_cast<const Bytef*>(rest.data()), static_cast<uInt>(rest.size()));
  return static_cast<std::uint32_t>(crc);
}

std::uint16_t compute_vcrc(std::span<const std::byte> bytes) {
  // Bits go least significant first, as on the serial link.
  boost::crc_optimal<16, 0x100b, 0xffff, 0xffff, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

void refresh_vcrc(std::span<std::byte> bytes) {
  if (bytes.size() < kVcrcSize) return;
  const std::size_t end = bytes.size() - kVcrcSize;
  const std::uint16_t vcrc = compute_vcrc(bytes.first(end));
  bytes[end] = static_cast<std::byte>(vcrc & 0xff);
  bytes[end + 1] = static_cast<std::byte>(vcrc >> 8);
}

}  // namespace softhca::ib
