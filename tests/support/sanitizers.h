#pragma once

// Which sanitizer a test is compiled for: g++ says it by a macro, clang by a feature.

namespace lockstep::support {

#if defined(__has_feature)
inline constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
inline constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
#else
#  ifdef __SANITIZE_ADDRESS__
inline constexpr bool kAddressSanitizer = true;
#  else
inline constexpr bool kAddressSanitizer = false;
#  endif
#  ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#  else
inline constexpr bool kThreadSanitizer = false;
#  endif
#endif

/// Under which code takes several times as long.
inline constexpr bool kSanitizer = kAddressSanitizer || kThreadSanitizer;

}  // namespace lockstep::support
