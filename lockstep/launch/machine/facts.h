#pragma once

// Facts about a machine as `lockstep env` prints them, and how they are read out of the texts of
// /proc and its like. All pure. A text that does not hold what is asked for gives "unknown (why)":
// no value is made up.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

struct Fact {
  std::string name;
  std::string value;
};

struct Section {
  std::string title;
  std::vector<Fact> facts;
};

/// One heading per section, "  name: value" below it. Control characters are shown as '?'.
std::string facts_as_text(const std::vector<Section>& sections);

/// {"title": {"name": "value", ...}, ...}, in order. Bytes that are not UTF-8 become U+FFFD.
std::string facts_as_json(const std::vector<Section>& sections);

/// "unknown (<why>)".
std::string unknown(const std::string& why);

/// The first value in lines of "key : value" (/proc/cpuinfo, /proc/meminfo).
std::optional<std::string> line_value(std::string_view text, std::string_view key);

/// "23.5 GiB" of a line "MemTotal:  24684096 kB".
std::optional<std::string> size_of_line(std::string_view text, std::string_view key);

/// The instruction sets in the "flags" of /proc/cpuinfo that decide which kernels run:
/// "avx2, avx512f", "none of avx2, ..."; nothing without such a line.
std::optional<std::string> instruction_sets(std::string_view cpuinfo);

/// The choice in brackets: "madvise" of "always [madvise] never".
std::optional<std::string> bracketed(std::string_view text);

/// PRETTY_NAME of /etc/os-release, without its quotes.
std::optional<std::string> distribution(std::string_view os_release);

/// "550.54.15" of /proc/driver/nvidia/version.
std::optional<std::string> nvidia_driver(std::string_view version);

/// `text` without the newlines at its end.
std::string without_newline(std::string text);

/// Whether an environment variable changes how a job runs.
bool changes_a_job(std::string_view name);

/// Whether its value is nobody's business: TOKEN, SECRET, KEY or PASSWORD is in the name.
bool is_secret(std::string_view name);

/// The facts among "NAME=value" entries that change a job, by name; secret values are hidden.
std::vector<Fact> job_variables(const std::vector<std::string>& environment);

}  // namespace lockstep::launch
