// Puts MISPLACED at the end of a row of transforms: what does not belong there the compiler refuses, with a sentence
// that says where it does (CMakeLists.txt has the cases).
#include "lockstep/data/transforms/mixup.h"
#include "lockstep/data/transforms/multi_crop.h"
#include "lockstep/data/transforms/normalize.h"
#include "lockstep/data/transforms/random_erasing.h"
#include "lockstep/data/transforms/transform.h"

int main() {
  using namespace lockstep::data;
  Compose transforms;
  transforms.then(MISPLACED);
}
