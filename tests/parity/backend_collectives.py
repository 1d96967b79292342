"""What each rank of backend_test.py calls: every collective, by the backend "lockstep" and by gloo."""
import pathlib

import torch
import torch.distributed as dist

import backend_ranks
import lockstep_torch

OPS = ("SUM", "PRODUCT", "MIN", "MAX")


def whole_numbers(rank, *sizes, dtype=None):
    """Of which sums and products are exact, in whatever order."""
    generator = torch.Generator().manual_seed(100 * rank + len(sizes))
    return torch.randint(-3, 4, sizes, generator=generator).to(dtype or torch.float32)


def same(a, b):
    assert a.dtype == b.dtype and torch.equal(a, b), (a, b)


def refused(error, text, call, *arguments, **named):
    try:
        work = call(*arguments, **named)
        if work is not None:
            work.wait()
    except error as thrown:
        assert text in str(thrown), thrown
        assert "\n" not in str(thrown), thrown
        return
    raise AssertionError(f"not refused: {text}")


def both(gloo, call):
    """What call(group) returns by either backend is the same."""
    ours, theirs = call(None), call(gloo)
    for mine, other in zip(ours, theirs, strict=True):
        same(mine, other)


def collectives(rank, nodes=1):
    backend_ranks.init()
    size = dist.get_world_size()
    gloo = dist.new_group(backend="gloo")
    for case in (reductions, gathers, exchanges, rooted, coalesced, objects):
        case(gloo, rank, size)
        dist.barrier()
    uneven(rank, size)
    messages(rank, size)
    asynchronous(rank, size)
    profiled(rank, size)
    subsets(rank, size)
    shared(rank, size, nodes)
    refusals(rank)


def reductions(gloo, rank, size):
    def reduced(group, tensor, op):
        tensor = tensor.clone()
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op), group=group)
        return [tensor]

    for op in OPS:
        both(gloo, lambda group: reduced(group, whole_numbers(rank, 3, 5), op))
    for sizes in ((), (0,), (1,), (70_000,), (300, 401)):
        both(gloo, lambda group: reduced(group, whole_numbers(rank, *sizes), "SUM"))
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.int64):
        both(gloo, lambda group: reduced(group, whole_numbers(rank, 7, dtype=dtype), "SUM"))
    both(gloo, lambda group: reduced(group, whole_numbers(rank, 4, dtype=torch.complex64), "SUM"))
    mean = whole_numbers(rank, 9)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    same(mean, reduced(None, whole_numbers(rank, 9), "SUM")[0] * (1 / size))
    strided = whole_numbers(rank, 6, 4).t()
    dist.all_reduce(strided)
    same(strided, reduced(gloo, whole_numbers(rank, 6, 4).t().contiguous(), "SUM")[0])


def gathers(gloo, rank, size):
    def lists(group, tensor):
        into = [torch.zeros_like(tensor) for _ in range(size)]
        dist.all_gather(into, tensor, group=group)
        return into

    def one(group, tensor):
        into = torch.zeros(size * tensor.size(0), *tensor.shape[1:])
        dist.all_gather_into_tensor(into, tensor, group=group)
        return [into]

    for call in (lists, one):
        for rows in (0, 2, 50_000):
            both(gloo, lambda group: call(group, whole_numbers(rank, rows, 3)))
    for peer, tensor in enumerate(lists(None, whole_numbers(rank, 5, dtype=torch.int16))):  # which gloo has not
        same(tensor, whole_numbers(peer, 5, dtype=torch.int16))

    def scattered(group, rows):
        into = torch.zeros(rows, 3)
        dist.reduce_scatter(into, [whole_numbers(rank * size + peer, rows, 3) for peer in range(size)], group=group)
        return [into]

    def scattered_one(group, rows):
        into = torch.zeros(rows, 3)
        dist.reduce_scatter_tensor(into, whole_numbers(rank, rows * size, 3), group=group)
        return [into]

    for call in (scattered, scattered_one):
        for rows in (1, 40_000):
            both(gloo, lambda group: call(group, rows))


def uneven(rank, size):
    """Which gloo has in reduce_scatter alone."""
    for rows in (1, 30_000):
        into = [torch.full((rows * peer, 2), -1.) for peer in range(size)]
        dist.all_gather(into, whole_numbers(rank, rows * rank, 2))
        for peer, tensor in enumerate(into):
            same(tensor, whole_numbers(peer, rows * peer, 2))
        into = torch.full((rows * rank, 2), -1.)
        dist.reduce_scatter(into, [whole_numbers(rank, rows * peer, 2) for peer in range(size)])
        same(into, sum(whole_numbers(peer, rows * rank, 2) for peer in range(size)))


def exchanges(gloo, rank, size):
    def single(group, splits):
        into = torch.zeros(sum(peer + rank for peer in range(size)) if splits else 2 * size, 3)
        given = whole_numbers(rank, sum(rank + peer for peer in range(size)) if splits else 2 * size, 3)
        rows = [rank + peer for peer in range(size)] if splits else None
        dist.all_to_all_single(into, given, rows, rows, group=group)
        return [into]

    for splits in (False, True):
        both(gloo, lambda group: single(group, splits))

    into = [torch.zeros(peer + rank) for peer in range(size)]
    dist.all_to_all(into, [torch.full((rank + peer,), float(10 * rank + peer)) for peer in range(size)])
    for peer, tensor in enumerate(into):
        same(tensor, torch.full((peer + rank,), float(10 * peer + rank)))


def rooted(gloo, rank, size):
    for root in range(size):
        def broadcast(group):
            tensor = whole_numbers(rank, 11, dtype=torch.int32)
            dist.broadcast(tensor, root, group=group)
            return [tensor]

        def reduce(group):
            tensor = whole_numbers(rank, 11)
            dist.reduce(tensor, root, group=group)
            return [tensor] if rank == root else []

        def gather(group):
            into = [torch.zeros(4) for _ in range(size)] if rank == root else None
            dist.gather(whole_numbers(rank, 4), into, root, group=group)
            return into or []

        def scatter(group):
            into = torch.zeros(4)
            dist.scatter(into, [whole_numbers(peer, 4) for peer in range(size)] if rank == root else None, root,
                         group=group)
            return [into]

        for call in (broadcast, reduce, gather, scatter):
            both(gloo, call)


def coalesced(gloo, rank, size):
    tensors = [whole_numbers(rank, count) for count in (3, 1, 8)]
    with dist.distributed_c10d._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor in tensors:
        other = whole_numbers(rank, tensor.numel())
        dist.all_reduce(other, group=gloo)
        same(tensor, other)
    into = [torch.zeros(size * count) for count in (2, 5)]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
        for tensor in into:
            dist.all_gather_into_tensor(tensor, torch.full((tensor.numel() // size,), float(rank)))
    manager.wait()
    for tensor in into:
        same(tensor, torch.arange(size).repeat_interleave(tensor.numel() // size).float())
    lists = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [torch.full((2,), float(rank)), torch.full((3,), -float(rank))])
    for peer, (first, second) in enumerate(lists):
        same(torch.cat((first, second)), torch.tensor([peer] * 2 + [-peer] * 3).float())
    parts = [torch.zeros(2), torch.zeros(1)]
    with dist.distributed_c10d._coalescing_manager():
        for part in parts:
            dist.reduce_scatter_tensor(part, torch.ones(size * part.numel()))
    same(torch.cat(parts), torch.full((3,), float(size)))


def objects(_gloo, rank, size):
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank, "text": "x" * rank})
    assert found == [{"rank": peer, "text": "x" * peer} for peer in range(size)], found
    said = [f"by {rank}", rank]
    dist.broadcast_object_list(said, size - 1)
    assert said == [f"by {size - 1}", size - 1], said


def messages(rank, size):
    after, before = (rank + 1) % size, (rank - 1) % size
    if rank == 0:
        dist.send(whole_numbers(0, 70_000), size - 1, tag=3)
    if rank == size - 1:
        into = torch.zeros(70_000, 2)
        assert dist.recv(into[:, 1], 0, tag=3) == 0
        same(into, torch.stack((torch.zeros(70_000), whole_numbers(0, 70_000)), 1))
    # All send at the same time what no buffer holds.
    large, into = torch.full((3_000_000,), float(rank)), torch.zeros(3_000_000)
    works = [dist.isend(large, after), dist.irecv(into, before)]
    for work in works:
        work.wait()
    same(into, torch.full_like(into, before))
    small = torch.zeros(3, dtype=torch.int16)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, small + rank, after), dist.P2POp(dist.irecv, small, before),
                                    dist.P2POp(dist.isend, large, before), dist.P2POp(dist.irecv, into, after)])
    for work in works:
        work.wait()
    same(small, torch.full_like(small, before))
    same(into, torch.full_like(into, after))
    # What is called back may call collectives, and messages that it waits for.
    def called(future):
        dist.all_reduce(future.value()[0])
        dist.barrier()
        return future.value()[0]

    sent, received = dist.isend(torch.ones(1), after), dist.irecv(torch.zeros(1), before)
    same(received.get_future().then(called).wait(), torch.full((1,), float(size)))
    sent.wait()
    if rank == 0:
        dist.send_object_list([{"a": "x" * 1000}, 7], 1)
    if rank == 1:
        objects = [None, None]
        dist.recv_object_list(objects, 0)
        assert objects == [{"a": "x" * 1000}, 7], objects


def asynchronous(rank, size):
    tensors = [torch.full((count,), float(rank)) for count in (1, 70_000, 3)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    dist.barrier()  # one order for all, so those before have ended
    assert all(work.is_completed() for work in works)
    for work, tensor in zip(works, tensors):
        assert work.wait()
        same(tensor, torch.full_like(tensor, sum(range(size))))

    # What a callback calls comes next on all ranks, and may be waited for in it.
    def twice(future):
        dist.all_reduce(future.value()[0])
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    first = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(twice)
    second = dist.all_reduce(torch.ones(3), async_op=True)
    same(first.wait(), torch.full((3,), float(size**3)))
    second.wait()


def profiled(rank, size):
    """A profile has each call, with the shapes of what this rank gave to it."""
    with torch.autograd.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(torch.ones(3, 2))
        dist.all_gather([torch.zeros(4) for _ in range(size)], torch.ones(4))
        sent = dist.isend(torch.ones(5), (rank + 1) % size)
        dist.recv(torch.zeros(5), (rank - 1) % size)
        sent.wait()
    shapes = {event.name: event.input_shapes for event in profile.function_events if event.name.startswith("lockstep:")}
    assert shapes == {"lockstep:all_reduce": [[3, 2]], "lockstep:all_gather": [[4]], "lockstep:send": [[5]],
                      "lockstep:recv": [[5]]}, shapes


def subsets(rank, size):
    some = list(range(1, size))
    group = dist.new_group(some)
    if rank in some:
        tensor = torch.ones(4)
        dist.all_reduce(tensor, group=group)
        same(tensor, torch.full((4,), float(size - 1)))
        dist.broadcast(tensor.fill_(rank), some[-1], group=group)
        same(tensor, torch.full((4,), float(some[-1])))
        dist.destroy_process_group(group)
    alone = [dist.new_group([peer]) for peer in range(size)][rank]
    dist.all_reduce(torch.ones(1), group=alone)


def mapping_of(tensor):
    address = tensor.data_ptr()
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(number, 16) for number in line.split()[0].split("-"))
        if begin <= address < end:
            return line
    raise AssertionError("not mapped")


def shared(rank, size, nodes):
    whole = lockstep_torch.shared_empty(100_000)
    same(whole, torch.zeros(100_000))
    assert ("memfd" in mapping_of(whole)) == (nodes == 1), mapping_of(whole)
    part = whole[5:70_000]
    part.fill_(rank + 1)
    dist.all_reduce(part)
    same(part, torch.full_like(part, size * (size + 1) / 2))
    assert lockstep_torch.shared_empty((2, 3), dtype=torch.int64).shape == (2, 3)
    # Nothing else is shared: a loader's worker may write where it likes.
    assert "memfd" not in mapping_of(torch.empty(1 << 20))
    data = torch.utils.data.TensorDataset(torch.arange(8.))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1)
    same(torch.cat([batch for batch, in loader]), torch.arange(8.))
    dist.barrier()


def refusals(rank):
    for op in ("BAND", "BOR", "BXOR"):
        refused(ValueError, f"all_reduce: ReduceOp.{op} is none of the lockstep backend's, which are SUM, AVG, MIN, MAX "
                "and PRODUCT", dist.all_reduce, torch.ones(1, dtype=torch.int32), getattr(dist.ReduceOp, op))
    refused(ValueError, "ReduceOp.PREMUL_SUM", dist.all_reduce, torch.ones(1), dist._make_nccl_premul_sum(2.0))
    refused(ValueError, "mean", dist.all_reduce, torch.ones(1, dtype=torch.int32), dist.ReduceOp.AVG)
    refused(ValueError, "dtype Short", dist.all_reduce, torch.ones(1, dtype=torch.int16))
    refused(ValueError, "dtype Short", lambda: dist.all_reduce(torch.ones(1, dtype=torch.int16), async_op=True))
    refused(ValueError, "needs a dense tensor", dist.all_reduce, torch.ones(2, 2).to_sparse())
    refused(ValueError, "all_gather_into_tensor: the output needs to be contiguous", dist.all_gather_into_tensor,
            torch.ones(1), torch.ones(5))
    size = dist.get_world_size()
    after = (rank + 1) % size
    into = [torch.zeros(peer + 1) for peer in range(size)]
    into[after] = torch.zeros(99)
    refused(ValueError, f"all_gather: this rank expects 99 elements from rank {after} and was sent {after + 1}",
            dist.all_gather, into, torch.ones(rank + 1))
    refused(ValueError, "they need to be alike", dist.all_gather, into, torch.ones(98))
    lengths = list(range(1, size + 1)) if rank else list(range(size, 0, -1))  # rank 0's are the others' backwards
    refused(ValueError, "elements, those of rank", dist.reduce_scatter, torch.zeros(lengths[rank]),
            [torch.ones(length) for length in lengths])
    lists = [[torch.zeros(2), torch.zeros(3)] for _ in range(size)]
    lists[size - 1].pop()
    refused(ValueError, f"all_gather_coalesced: 1 tensors of rank {size - 1} for 2", dist.all_gather_coalesced, lists,
            [torch.ones(2), torch.ones(3)])
    lists[size - 1].append(torch.zeros(4))
    refused(ValueError, "they need to be alike", dist.all_gather_coalesced, lists, [torch.ones(2), torch.ones(3)])
    refused(ValueError, f"all_gather_coalesced: {size - 1} lists for {size} ranks", dist.all_gather_coalesced,
            lists[:size - 1], [torch.ones(2), torch.ones(3)])
    refused(ValueError, "recv: a lockstep process group needs the rank to receive from", dist.recv, torch.ones(1))
    refused(ValueError, "send: tag 65536 is not one of 0 to 65535", dist.send, torch.ones(1), 1 - min(rank, 1), tag=1 << 16)
    dist.barrier()  # the group is as good as before
