#pragma once

// SLURM's way to write many node names in few words: "a[01-03,7],b-[1-2]c[4,5]". Names are separated by commas; each
// may have brackets anywhere, with numbers and ranges of numbers in them. A range counts with as many digits as its
// lower end is written with. Of several brackets the last one changes fastest, as in `scontrol show hostnames`.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::rendezvous {

/// Nodes of one list, at most. The largest machines have some ten thousand.
inline constexpr std::size_t kMaxNodes = 65'536;

/// The names in order. Pure; takes memory for at most kMaxNodes names of at most 253 characters, whatever the text
/// says. Throws UsageError "environment: <variable>=<text>: at character 5: ..." for an empty text, a bracket that is
/// not closed or is within another, a range that counts down, a name with characters that no host name has, a name that
/// is there twice, more than kMaxNodes.
std::vector<std::string> expand_node_list(std::string_view variable, std::string_view text);

}  // namespace lockstep::rendezvous
