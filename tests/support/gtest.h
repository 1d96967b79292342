#pragma once

// GoogleTest, for the precompiled header of tests without libtorch. Our helpers' namespace lockstep::testing hides
// ::testing from a test in namespace lockstep that is compiled in one batch with a file that includes a helper: so it
// has GoogleTest's names as well.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::testing {
using namespace ::testing;
}
