#include "lockstep/data/fetch/recipe.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

// Sizes and sums: those that TensorFlow Datasets publishes (tensorflow_datasets/url_checksums). Addresses: https only.
// The first CIFAR address redirects to the second these days.
const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = {
      {.name = "mnist",
       .mirrors = {"https://ossci-datasets.s3.amazonaws.com/mnist/",
                   "https://storage.googleapis.com/cvdf-datasets/mnist/"},
       .files = {{"train-images-idx3-ubyte.gz", 9'912'422,
                  "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
                 {"train-labels-idx1-ubyte.gz", 28'881,
                  "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
                 {"t10k-images-idx3-ubyte.gz", 1'648'877,
                  "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
                 {"t10k-labels-idx1-ubyte.gz", 4'542,
                  "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}}},
      {.name = "fashion-mnist",
       .mirrors = {"https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
                   "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"},
       .files = {{"train-images-idx3-ubyte.gz", 26'421'880,
                  "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
                 {"train-labels-idx1-ubyte.gz", 29'515,
                  "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
                 {"t10k-images-idx3-ubyte.gz", 4'422'102,
                  "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
                 {"t10k-labels-idx1-ubyte.gz", 5'148,
                  "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"}}},
      {.name = "cifar10",
       .mirrors = {"https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"},
       .files = {{"cifar-10-binary.tar.gz", 170'052'171,
                  "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}},
       .unpacks_to = "cifar-10-batches-bin"},
      {.name = "cifar100",
       .mirrors = {"https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"},
       .files = {{"cifar-100-binary.tar.gz", 168'513'733,
                  "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"}},
       .unpacks_to = "cifar-100-binary"},
  };
  return all;
}

// "" for an address that libcurl takes.
std::string address_objection(const std::string& address) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> url(curl_url(), curl_url_cleanup);
  if (!url) throw Error("libcurl cannot start");
  const CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, address.c_str(), 0);
  return code == CURLUE_OK ? "" : curl_url_strerror(code);
}

}  // namespace

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) names.push_back(recipe.name);
  return names;
}

const Recipe& find_recipe(const std::string& name) {
  const auto found = std::ranges::find(recipes(), name, &Recipe::name);
  if (found == recipes().end()) throw UsageError(base::unknown_name("data set", name, recipe_names()));
  return *found;
}

Recipe with_mirror(Recipe recipe, const std::string& mirror) {
  const auto refuse = [&](const std::string& why) { throw UsageError("mirror '" + base::shown(mirror) + "': " + why); };
  if (!mirror.starts_with("http://") && !mirror.starts_with("https://")) {
    refuse("an address that begins with https:// or http:// expected");
  }
  if (std::ranges::any_of(mirror, [](unsigned char c) { return c <= ' ' || c == 0x7f; })) {
    refuse("an address without blanks and control characters expected");
  }
  const std::string objection = address_objection(mirror);
  if (!objection.empty()) refuse("no address: " + objection);
  recipe.mirrors = {mirror.ends_with('/') ? mirror : mirror + "/"};
  return recipe;
}

}  // namespace lockstep::data
