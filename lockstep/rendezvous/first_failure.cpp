#include "lockstep/rendezvous/first_failure.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace lockstep::rendezvous {
namespace {

bool before(const NodeFailure& a, const NodeFailure& b) {
  const bool follows = (a.kind == FailureKind::connection) != (b.kind == FailureKind::connection);
  const double apart = a.when > b.when ? a.when - b.when : b.when - a.when;
  if (follows || apart <= a.error + b.error) return std::tie(a.kind, a.when) < std::tie(b.kind, b.when);
  return a.when < b.when;
}

}  // namespace

bool speaks_of_connection(std::string_view cause) {
  constexpr std::array<std::string_view, 7> kWords{
      "onnection closed by peer", "onnection reset", "onnection refused", "roken pipe",
      "remote process exited",    "ocket Timeout",   "ailed to recv"};
  return std::ranges::any_of(kWords,
                             [&](std::string_view words) { return cause.find(words) != std::string_view::npos; });
}

// Closeness is not transitive, so this is no sort: each is held against the best so far, in the order of the nodes.
std::size_t first_of(const std::vector<NodeFailure>& failures) {
  std::size_t first = 0;
  for (std::size_t i = 1; i < failures.size(); ++i)
    if (before(failures[i], failures[first])) first = i;
  return first;
}

}  // namespace lockstep::rendezvous
