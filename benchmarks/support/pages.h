#pragma once

// Whether the memory that is made meanwhile may use huge pages.

#include <sys/prctl.h>

namespace lockstep::bench {

enum class Pages { small, huge };
inline const char* to_string(Pages pages) { return pages == Pages::small ? "small pages" : "huge pages"; }

/// Refuses huge pages to this process while it lives; the way to measure without them.
class PagesScope {
 public:
  explicit PagesScope(Pages pages) { prctl(PR_SET_THP_DISABLE, pages == Pages::small, 0, 0, 0); }
  ~PagesScope() { prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); }
  PagesScope(const PagesScope&) = delete;
  PagesScope& operator=(const PagesScope&) = delete;
};

}  // namespace lockstep::bench
