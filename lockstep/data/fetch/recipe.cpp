#include "lockstep/data/fetch/recipe.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

// "" for an address that libcurl takes.
std::string address_objection(const std::string& address) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> url(curl_url(), curl_url_cleanup);
  if (!url) throw Error("libcurl cannot start");
  const CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, address.c_str(), 0);
  return code == CURLUE_OK ? "" : curl_url_strerror(code);
}

}  // namespace

Recipe find_recipe(const std::string& name) {
  const std::vector<std::string> names = fetched_set_names();
  if (std::ranges::find(names, name) == names.end()) throw UsageError(base::unknown_name("data set", name, names));
  const KnownSet& set = find_set(name);
  const bool packed = set.downloads.front().name.ends_with(".tar.gz");
  return {.name = name, .mirrors = set.mirrors, .files = set.downloads, .unpacks_to = packed ? set.folder : ""};
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
