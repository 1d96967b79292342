// The kernels of all instruction sets of this machine give the same bits.

#include "lockstep/nn/kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/usage_error.h"

namespace lockstep::nn {
namespace {

// All that the kernels compute of some pictures, as bytes.
template <class T>
std::string everything(const KernelsOf<T>& kernel, const Planes& planes, const PooledShape& shape, std::size_t pictures,
                       const std::vector<T>& x, const std::vector<T>& dy) {
  const std::size_t c = planes.channels, chunks = chunks_of(planes);
  std::vector<double> mean(c), squares(c), plain(c), products(c);
  Moments moments{0, mean.data(), squares.data()};
  kernel.moments(planes, x.data(), chunks - 1, chunks, moments);
  std::vector<float> scale(c, 1.25F), shift(c, 0.1F), middle(c, 0.01F);
  const Affine affine{scale.data(), shift.data()};
  const InputGradient by{shift.data(), middle.data(), shift.data(), scale.data()};
  std::vector<T> y(x.size()), cut(x.size()), dx(x.size()), largest(x.size()), from(x.size());
  std::vector<std::uint8_t> places(x.size());
  const std::size_t ranges = planes.inner == 1 ? planes.outer : planes.outer * c;
  kernel.apply(planes, x.data(), dy.data(), affine, y.data(), 0, ranges);
  kernel.gradient_sums(planes, x.data(), dy.data(), y.data(), cut.data(), affine, shift.data(), 0, 1,
                       {plain.data(), products.data()});
  kernel.input_gradient(planes, x.data(), dy.data(), false, affine, by, dx.data(), 0, ranges);
  std::string bytes;
  const auto add = [&](const auto& values) {
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
  };
  for (const Pooling pooling : {Pooling::halving, Pooling::stem}) {
    if (planes.inner != 1) break;
    const PooledShape small{shape.height, shape.width, (shape.height + (pooling == Pooling::stem)) / 2,
                            (shape.width + (pooling == Pooling::stem)) / 2};
    kernel.pool(planes, small, pooling, x.data(), affine, largest.data(), from.data(), places.data(), 0, pictures);
    std::vector<T> of_pool(x.size());
    kernel.pool_input_gradient(planes, small, pooling, x.data(), dy.data(), places.data(), by, of_pool.data(), 0,
                               pictures);
    add(largest), add(from), add(places), add(of_pool);
  }
  add(mean), add(squares), add(plain), add(products), add(y), add(cut), add(dx);
  return bytes;
}

template <class T>
std::vector<T> values(std::size_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::normal_distribution<float> normal;
  std::vector<T> made(count);
  for (T& value : made) {
    const float drawn = normal(random);
    if constexpr (std::is_same_v<T, float>) {
      value = drawn;
    } else {
      std::uint32_t bits;
      std::memcpy(&bits, &drawn, sizeof bits);
      value = T(bits >> 16);
    }
  }
  return made;
}

TEST(NnKernels, AllInstructionSetsGiveTheSameBits) {
  const std::size_t pictures = 3, height = 7, width = 19;
  for (const std::size_t channels : {5, 16, 90}) {
    const std::size_t count = pictures * channels * height * width;
    for (const Planes& planes :
         {Planes{pictures, channels, height * width}, Planes{pictures * height * width, channels, 1}})
      for (const char* build : kernel_builds()) {
        SCOPED_TRACE(build);
        const PooledShape shape{height, width};
        const Kernels &one = kernels_by(build), &scalar = kernels_by("scalar");
        const auto x = values<float>(count, 1), dy = values<float>(count, 2);
        EXPECT_EQ(everything(one.of_float, planes, shape, pictures, x, dy),
                  everything(scalar.of_float, planes, shape, pictures, x, dy));
        const auto half = values<Bf16>(count, 3), half_dy = values<Bf16>(count, 4);
        EXPECT_EQ(everything(one.of_bf16, planes, shape, pictures, half, half_dy),
                  everything(scalar.of_bf16, planes, shape, pictures, half, half_dy));
      }
  }
}

TEST(NnKernels, AnInstructionSetThatIsNoneIsNamed) {
  EXPECT_EQ(testing::usage_error([] { kernels_by("mmx"); }),
            "LOCKSTEP_ISA=mmx: this machine offers avx512, avx2, scalar at best");
}

}  // namespace
}  // namespace lockstep::nn
