#include "lockstep/models/image_model.h"

#include "lockstep/models/head.h"

namespace lockstep::models {

at::Tensor ImageModel::through(const std::string& name, const at::Tensor& x) const {
  return through_layer(*named_children()[name], name, x);
}

}  // namespace lockstep::models
