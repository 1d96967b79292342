#include "benchmarks/support/program.h"

#include <algorithm>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/message.h"
#include "lockstep/flags/print.h"

namespace lockstep::bench {

int run_program(const flags::Table& table, int argc, const char* const* argv,
                const std::function<void(const flags::Parsed& parsed)>& body) {
  try {
    const flags::Parsed parsed = flags::parse(table, {argv + std::min(argc, 1), argv + argc});
    if (!parsed.text.empty()) return flags::print_help(parsed.text) ? kExitDone : kExitFailure;
    body(parsed);
    return kExitDone;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "lockstep: error: %s\n", base::line_of(error.what()).c_str());
    return kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: error: %s\n", base::message_of(error).c_str());
    return exit_code(error);
  }
}

}  // namespace lockstep::bench
