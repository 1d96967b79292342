#pragma once

// The report of a job over several nodes: what each node's own says, as one. Pure.

#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// A node as the hosting agent knows it.
struct NodeReport {
  std::string host;
  int rank = 0;  ///< in the last generation that it was in
  int workers = 1;
  bool left = false;                ///< it went before the end of the job
  std::optional<std::string> text;  ///< its own report (to_json()); none came
};

/// `own`, the hosting agent's report, with what the `others` say: in each attempt the ends of all nodes, in the order
/// of the nodes, and the first failure wherever it was; "workers" of all; "nodes", one entry for each. What a report
/// says of attempts that `own` does not have, and a text that is no report, are left out.
std::string report_of_all(const std::string& own, const std::vector<NodeReport>& others);

}  // namespace lockstep::launch
