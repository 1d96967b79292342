#include "lockstep/data/sets/known_sets.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

using Names = std::vector<std::string>;

constexpr SetTask kMnistTask{.channels = 1, .height = 28, .width = 28, .classes = 10};

constexpr SetTask cifar_task(std::int64_t classes) {
  return {.channels = 3, .height = 32, .width = 32, .classes = classes};
}

// The first redirects to the second these days.
const Names& cifar_mirrors() {
  static const Names mirrors = {"https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"};
  return mirrors;
}

// Sizes and sums: those that TensorFlow Datasets publishes (tensorflow_datasets/url_checksums). Addresses: https only.
// Folders and names of classes: torchvision's.
std::vector<KnownSet> rows() {
  return {
      {.name = "digits", .files = SetFiles::none, .task = kMnistTask, .transforms = "none"},
      {.name = "mnist",
       .files = SetFiles::idx,
       .task = kMnistTask,
       .transforms = "none",
       .folder = "MNIST/raw",
       .class_names = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"},
       .found = "MNIST, or a set in its format",
       .mirrors = {"https://ossci-datasets.s3.amazonaws.com/mnist/",
                   "https://storage.googleapis.com/cvdf-datasets/mnist/"},
       .downloads = {{"train-images-idx3-ubyte.gz", 9'912'422,
                      "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
                     {"train-labels-idx1-ubyte.gz", 28'881,
                      "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
                     {"t10k-images-idx3-ubyte.gz", 1'648'877,
                      "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
                     {"t10k-labels-idx1-ubyte.gz", 4'542,
                      "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}}},
      {.name = "fashion-mnist",
       .files = SetFiles::idx,
       .task = kMnistTask,
       .transforms = "none",
       .folder = "FashionMNIST/raw",
       .class_names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
                       "Ankle boot"},
       .found = "Fashion-MNIST",
       .mirrors = {"https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
                   "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"},
       .downloads = {{"train-images-idx3-ubyte.gz", 26'421'880,
                      "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
                     {"train-labels-idx1-ubyte.gz", 29'515,
                      "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
                     {"t10k-images-idx3-ubyte.gz", 4'422'102,
                      "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
                     {"t10k-labels-idx1-ubyte.gz", 5'148,
                      "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"}}},
      {.name = "cifar10",
       .files = SetFiles::cifar10,
       .task = cifar_task(10),
       .transforms = "cifar",
       .folder = "cifar-10-batches-bin",
       .class_names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"},
       .found = "CIFAR-10 (binary)",
       .mirrors = cifar_mirrors(),
       .downloads = {{"cifar-10-binary.tar.gz", 170'052'171,
                      "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}}},
      {.name = "cifar100",
       .files = SetFiles::cifar100,
       .task = cifar_task(100),
       .transforms = "cifar",
       .folder = "cifar-100-binary",
       .found = "CIFAR-100 (binary), fine labels",
       .mirrors = cifar_mirrors(),
       .downloads = {{"cifar-100-binary.tar.gz", 168'513'733,
                      "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"}}},
      {.name = "cifar100-coarse",
       .files = SetFiles::cifar100_coarse,
       .task = cifar_task(20),
       .transforms = "cifar",
       .folder = "cifar-100-binary"},
      {.name = "imagefolder", .files = SetFiles::class_folders, .transforms = "imagenet"},
      {.name = "csv-images", .files = SetFiles::annotated, .transforms = "imagenet"},
      {.name = "csv", .files = SetFiles::table, .task = {.channels = 1}, .transforms = "standardize"},
      {.name = "line",
       .files = SetFiles::line,
       .task = {.channels = 1, .height = 1, .width = 20, .classes = 1},
       .transforms = "none"},
  };
}

Names names_where(bool (*wanted)(const KnownSet&)) {
  Names names;
  for (const KnownSet& set : known_sets())
    if (wanted(set)) names.push_back(set.name);
  return names;
}

}  // namespace

const std::vector<KnownSet>& known_sets() {
  static const std::vector<KnownSet> all = rows();
  return all;
}

const KnownSet& find_set(const std::string& name) {
  const auto found = std::ranges::find(known_sets(), name, &KnownSet::name);
  if (found == known_sets().end()) throw UsageError(base::unknown_name("data set", name, set_names()));
  return *found;
}

bool holds_numbers(const KnownSet& set) {
  return set.files == SetFiles::line || set.files == SetFiles::table || set.files == SetFiles::own_numbers;
}

bool is_drawn(const KnownSet& set) { return set.files == SetFiles::none || set.files == SetFiles::line; }

bool is_own(const KnownSet& set) {
  return set.files == SetFiles::own_pictures || set.files == SetFiles::own_samples ||
         set.files == SetFiles::own_numbers;
}

bool has_named_parts(const KnownSet& set) {
  return set.files == SetFiles::class_folders || set.files == SetFiles::annotated || set.files == SetFiles::table;
}

std::string how_to_download(const KnownSet& set) {
  return set.downloads.empty() ? "" : "; lockstep train --dataset " + set.name + " --download brings them";
}

Names set_names() {
  return names_where([](const KnownSet&) { return true; });
}

Names fetched_set_names() {
  return names_where([](const KnownSet& set) { return !set.mirrors.empty(); });
}

}  // namespace lockstep::data
