#pragma once

// The members' reports, where the hosting agent collects them: they come in parts, when a member is at its end.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/launch/report/all_nodes.h"
#include "lockstep/rendezvous/messages.h"

namespace lockstep::launch {

/// What one node's report may take, and those of all. What is longer is not kept: the node is there without a report.
inline constexpr std::size_t kLongestReport = 16 << 20;
inline constexpr std::size_t kLongestReports = 128 << 20;

/// `report` as messages; where it is too long, only that nothing more comes.
std::vector<rendezvous::Report> parts_of_report(const std::string& report);

class ReportCollection {
 public:
  /// A member of the generation that starts; again in the next one.
  void expect(std::uint64_t id, const NodeReport& node);
  /// Whether it was the last part of that member's, kept or not.
  bool take(std::uint64_t id, const rendezvous::Report& part);
  /// It has gone; `early`: before the job was over.
  void leave(std::uint64_t id, bool early);
  /// Whether nobody is left of whom something may come.
  bool complete() const;
  std::vector<NodeReport> take_all();

 private:
  struct Entry {
    NodeReport node;
    std::string text;
    bool over = false;  // nothing more comes
  };

  void forget(Entry& entry);

  std::map<std::uint64_t, Entry> entries_;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::launch
