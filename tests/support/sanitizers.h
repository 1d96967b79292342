#pragma once

// Which sanitizer a test is compiled for: g++ says it by a macro, clang by a feature.

namespace lockstep::testing {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
inline constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
#else
inline constexpr bool kAddressSanitizer = false;
#endif

}  // namespace lockstep::testing
