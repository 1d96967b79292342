#include "benchmarks/support/program.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/message.h"

namespace lockstep::bench {

int run_program(CLI::App& app, int argc, const char* const* argv, const std::function<void()>& body) {
  try {
    app.parse(argc, argv);
    body();
    return kExitDone;
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "lockstep: error: %s; --help lists the flags\n", base::line_of(error.what()).c_str());
    return kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: error: %s\n", base::message_of(error).c_str());
    return exit_code(error);
  }
}

}  // namespace lockstep::bench
