#pragma once

// Everything a training program needs: torch, and of Lockstep all but models, weights in files, and metrics files.

#include <torch/torch.h>

#include "lockstep/amp/grad_scaler.h"
#include "lockstep/amp/opt_level.h"
#include "lockstep/base/stop_on.h"
#include "lockstep/comm/async.h"
#include "lockstep/comm/collectives.h"
#include "lockstep/comm/group.h"
#include "lockstep/comm/world.h"
#include "lockstep/data.h"
#include "lockstep/evaluation/evaluate.h"
#include "lockstep/evaluation/outputs.h"
#include "lockstep/evaluation/predict.h"
#include "lockstep/evaluation/prediction_file.h"
#include "lockstep/evaluation/tensors.h"
#include "lockstep/memory/caching_allocator.h"
#include "lockstep/metrics/report.h"
#include "lockstep/metrics/tensorboard.h"
#include "lockstep/optim.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/hooks/default_hooks.h"
#include "lockstep/parallel/hooks/post_local_sgd.h"
#include "lockstep/parallel/hooks/power_sgd.h"
#include "lockstep/parallel/hooks/quantization.h"
#include "lockstep/parallel/hooks/top_k.h"
#include "lockstep/parallel/sync_batch_norm.h"
#include "lockstep/parallel/zero_redundancy_optimizer.h"
