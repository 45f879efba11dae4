// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/packet.h"

namespace softhca::ib {

/// Sizes of headers and checks on the wire, in bytes (IBA chapters 7, 8, 9).
inline constexpr std::size_t kLrhSize = 8;
inline constexpr std::size_t kGrhSize = 40;
inline constexpr std::size_t kBthSize = 12;
inline constexpr std::size_t kIcrcSize = 4;
inline constexpr std::size_t kVcrcSize = 2;
/// LRH.PktLen counts 4-byte words from the LRH up to and with the ICRC in 11 bits (IBA 7.7.5).
inline constexpr std::size_t kMaxWireSize = 2047 * 4 + kVcrcSize;

/// Why bytes are not a packet. A real port discards such packets and counts them (IBA 7.7, 9.6.1).
enum class DecodeStatus : std::uint8_t {
  ok,
  truncated,          ///< Ends inside a header, or too short for the checks.
  bad_length,         ///< LRH.PktLen or GRH.PayLen disagrees with the number of bytes.
  bad_vcrc,           ///< Damaged on this link (IBA 7.8.2).
  bad_icrc,           ///< Damaged somewhere on its way (IBA 7.8.1).
  bad_link_version,   ///< LRH.LVer is not 0.
  not_iba_transport,  ///< Raw packet (LRH.LNH 0 or 1).
  bad_grh,            ///< GRH.IPVer is not 6, or GRH.NxtHdr is not BTH.
  bad_transport_version,
  unknown_opcode,      ///< Not in IBA table 35, or of the reliable datagram service.
  bad_pad,             ///< More pad bytes than payload.
  unexpected_payload,  ///< The opcode carries none.
};
std::string_view to_string(DecodeStatus status);

/// Words of 4 bytes from LRH to ICRC of a packet with a known opcode: what data counters count
/// (IBA 16.1.3.5).
constexpr std::uint64_t wire_words(std::uint8_t opcode, bool has_grh, std::uint64_t payload) {
  const std::uint64_t headers = kLrhSize + (has_grh ? kGrhSize : 0) + transport_header_size(opcode);
  return (headers + (payload + 3) / 4 * 4 + kIcrcSize) / 4;
}
/// Bytes that encode() makes of `packet`, LRH to VCRC.
std::size_t encoded_size(const Packet& packet);

/// Replaces `out` by the packet as it is on the wire: LRH to VCRC, both checks filled in. Fields
/// are cut to their width. A payload that would not fit LRH.PktLen is refused: false, `out` empty.
bool encode(const Packet& packet, std::vector<std::byte>& out);

/// Reads a packet off the wire, LRH to VCRC. The bytes are not trusted: every length is checked
/// before use. Unless `ok`, `packet` is unspecified.
DecodeStatus decode(std::span<const std::byte> bytes, Packet& packet);

/// Invariant CRC over `bytes` (LRH up to the end of payload and pad), variant fields taken as ones
/// (IBA 7.8.1). On the wire it is stored least significant byte first.
std::uint32_t compute_icrc(std::span<const std::byte> bytes);
/// Variant CRC over `bytes` (LRH up to and with the ICRC) (IBA 7.8.2). Stored least significant
/// byte first.
std::uint16_t compute_vcrc(std::span<const std::byte> bytes);
/// Makes the trailing VCRC of a whole packet right again, as a device does that changed a variant
/// field.
void refresh_vcrc(std::span<std::byte> bytes);

}  // namespace softhca::ib
