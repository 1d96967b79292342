#pragma once

namespace lockstep::base {

/// How many columns the terminal behind the descriptor has; 0 where there is none, or one that does not say.
int terminal_columns(int fd);

}  // namespace lockstep::base
