#include "lockstep/launch/nodes/report_collection.h"

#include <algorithm>
#include <utility>

namespace lockstep::launch {
namespace {

constexpr std::size_t kPart = 48 << 10;

}  // namespace

std::vector<rendezvous::Report> parts_of_report(const std::string& report) {
  std::vector<rendezvous::Report> parts;
  if (report.size() > kLongestReport) return {{.part = {}, .last = true}};
  for (std::size_t at = 0; at < report.size(); at += kPart) parts.push_back({.part = {report.substr(at, kPart)}});
  if (!parts.empty()) parts.back().last = true;
  return parts;
}

void ReportCollection::expect(std::uint64_t id, const NodeReport& node) {
  Entry& entry = entries_[id];
  forget(entry);
  entry = {.node = node};
}

// What it has sent, whole or not, takes no place any more.
void ReportCollection::forget(Entry& entry) {
  bytes_ -= entry.text.size() + (entry.node.text ? entry.node.text->size() : 0);
  entry.text = {};
  entry.node.text.reset();
}

bool ReportCollection::take(std::uint64_t id, const rendezvous::Report& part) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  if (found->second.over) return part.last;
  Entry& entry = found->second;
  for (const std::string& text : part.part) {
    if (entry.text.size() + text.size() > kLongestReport || bytes_ + text.size() > kLongestReports) {
      forget(entry);
      entry.over = true;
      return part.last;
    }
    entry.text += text;
    bytes_ += text.size();
  }
  if (!part.last) return false;
  if (entry.text.empty()) return entry.over = true;  // it was too long
  entry.node.text = std::move(entry.text);
  return entry.over = true;
}

void ReportCollection::leave(std::uint64_t id, bool early) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  if (!found->second.over) forget(found->second);
  found->second.over = true;
  found->second.node.left = early;
}

bool ReportCollection::complete() const {
  return std::ranges::all_of(entries_, [](const auto& entry) { return entry.second.over; });
}

std::vector<NodeReport> ReportCollection::take_all() {
  std::vector<NodeReport> nodes;
  for (auto& [id, entry] : entries_) nodes.push_back(std::move(entry.node));
  entries_.clear();
  bytes_ = 0;
  return nodes;
}

}  // namespace lockstep::launch
