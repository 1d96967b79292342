#pragma once

// The kernel's three builds; update() chooses.

#include <cstddef>

#include "lockstep/optim/update.h"

namespace lockstep::optim {

void update_avx512(const SGDRule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, bool streaming);
void update_avx512(const AdamRule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, bool streaming);
void update_avx2(const SGDRule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, bool streaming);
void update_avx2(const AdamRule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, bool streaming);
void update_scalar(const SGDRule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, bool streaming);
void update_scalar(const AdamRule& rule, const Arrays& arrays, std::size_t begin, std::size_t end, bool streaming);

}  // namespace lockstep::optim
