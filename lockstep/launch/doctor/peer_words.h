#pragma once

// What both ends of the conversation of doctors agree upon (peer.h).

#include <chrono>
#include <string>

namespace lockstep::launch {

inline const std::string kPeerHello = "lockstep-doctor-peer 1 ";

/// For the measurement of one way.
inline constexpr std::chrono::seconds kWayTime{10};

/// A peer that hears nothing for so long ends.
inline constexpr std::chrono::minutes kPeerSilence{10};

}  // namespace lockstep::launch
