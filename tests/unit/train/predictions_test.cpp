#include "lockstep/train/predictions.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep::train {
namespace {

// Pictures that are never looked at; the last one has a name that CSV must quote.
class NamedPictures final : public data::PictureSet {
 public:
  std::int64_t size() const override { return 3; }
  data::Sample get(std::int64_t) const override { return {}; }
  std::string file_of(std::int64_t index) const override {
    return index == 0 ? "" : index == 1 ? "val/ant/1.jpg" : "val/\"bee\", big/2.jpg";
  }
  const std::vector<std::string>& classes() const override { return classes_; }

 private:
  std::vector<std::string> classes_ = {"ant", "bee, big"};
};

TEST(Predictions, ALineForEachSampleWithTheNamesOfItsClasses) {
  const at::Tensor rows =
      torch::tensor({{0.0, 0.0, double(0.75f)}, {0.0, 1.0, double(0.9f)}, {1.0, 1.0, 1.0}}, at::kDouble);
  EXPECT_EQ(evaluation::predictions_csv(columns_of(rows, NamedPictures())),
            "sample,file,label,prediction,probability\n"
            "0,,ant,ant,0.75\n"
            "1,val/ant/1.jpg,ant,\"bee, big\",0.9\n"
            "2,\"val/\"\"bee\"\", big/2.jpg\",\"bee, big\",\"bee, big\",1\n");
}

}  // namespace
}  // namespace lockstep::train
