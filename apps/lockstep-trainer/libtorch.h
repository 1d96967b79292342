#pragma once

namespace lockstep::app {

/// Says which libtorch this program runs with, in lines of "key=value" on stdout: what
/// `lockstep env` asks for. Returns the exit code.
int print_libtorch();

}  // namespace lockstep::app
