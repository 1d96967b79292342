"""How much of the time a GPU is idle, seen from outside of the program that uses it: for all programs alike.

Two counters of NVIDIA's management library, by the package nvidia-ml-py:

GPM, of Hopper and newer. "gpm": the share of the time in which any compute work was active on the GPU; "sms": the mean
share of its multiprocessors that were busy. The driver refreshes what they are computed from about every 0.1 s, so
an interval begins and ends up to that much early: it has to lie in a time in which nothing changes.

"nvml", of all GPUs: what nvidia-smi calls utilisation, the share of the driver's last period (a sixth of a second
to one) in which a kernel ran, in whole per cents.

Both take a pause that is shorter than they can resolve for work, so idle is at least what they say. Of contenders that
run the same kernels "sms" tells such pauses: who has more of them keeps less of the multiprocessors busy.
"""
import math
import statistics
import time

SETTLE_SECONDS = 0.6  # until nothing of the time before the turn is in GPM's interval
WINDOW_SECONDS = 1.0
PERIOD_SECONDS = 1.0  # utilisation: behind so much of the turn nothing of the time before is in it
NEEDED_SECONDS = SETTLE_SECONDS + WINDOW_SECONDS + 0.3  # that a turn must last


class Meter:
    """Of one GPU. `without` says which counter there is not, and why."""

    def __init__(self, uuid: str):
        self.without: list[str] = []
        self.driver = ""
        self.nvml = self.handle = None  # the library; None: there is no counter
        self.samples = []
        try:
            import pynvml
        except ImportError:
            self.without.append("no counter: nvidia-ml-py is not installed")
            return
        try:
            pynvml.nvmlInit()
            version = pynvml.nvmlSystemGetDriverVersion()
            self.driver = version.decode() if isinstance(version, bytes) else version
            self.handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            self.nvml = pynvml
        except pynvml.NVMLError as error:
            self.without.append(f"no counter: {error}")
            return
        self._begin_gpm()

    def watch(self) -> dict[str, float | None]:
        """Shares from 0 to 1 of a turn that has just begun and lasts NEEDED_SECONDS. Not where `nvml` is None."""
        begun = time.monotonic()
        time.sleep(SETTLE_SECONDS)
        self._sample(0)
        rates = []
        while time.monotonic() < begun + SETTLE_SECONDS + WINDOW_SECONDS:
            time.sleep(0.1)
            if time.monotonic() > begun + PERIOD_SECONDS:
                rates.append(self._utilisation())
        self._sample(1)
        known = [rate for rate in rates if rate is not None]
        return {**self._between_samples(), "nvml": statistics.mean(known) if known else None}

    def _lost(self, counter: str, why):
        """From now on this counter is not asked."""
        text = f"no {counter}: {why}"
        if text not in self.without:
            self.without.append(text)
        if counter == "GPM":
            self.samples = []

    def _begin_gpm(self):
        try:
            if not self.nvml.nvmlGpmQueryDeviceSupport(self.handle).isSupportedDevice:
                self._lost("GPM", "this GPU has none")
                return
            self.samples = [self.nvml.nvmlGpmSampleAlloc() for _ in range(2)]
        except (self.nvml.NVMLError, AttributeError) as error:
            self._lost("GPM", error)

    def _sample(self, number: int):
        if not self.samples:
            return
        try:
            self.nvml.nvmlGpmSampleGet(self.handle, self.samples[number])
        except self.nvml.NVMLError as error:
            self._lost("GPM", error)

    def _between_samples(self) -> dict[str, float | None]:
        found = {"gpm": None, "sms": None}
        if not self.samples:
            return found
        query = self.nvml.c_nvmlGpmMetricsGet_t()
        query.version = self.nvml.NVML_GPM_METRICS_GET_VERSION
        query.numMetrics = len(found)
        query.sample1, query.sample2 = self.samples
        query.metrics[0].metricId = self.nvml.NVML_GPM_METRIC_GRAPHICS_UTIL
        query.metrics[1].metricId = self.nvml.NVML_GPM_METRIC_SM_UTIL
        try:
            self.nvml.nvmlGpmMetricsGet(query)
        except self.nvml.NVMLError as error:
            self._lost("GPM", error)
            return found
        for name, metric in zip(found, query.metrics):
            if metric.nvmlReturn == 0 and math.isfinite(metric.value):
                found[name] = metric.value / 100
        if not found["gpm"]:  # steps were taken: where it is read without being counted, it is 0
            self._lost("GPM", "it counts nothing here")
            return {"gpm": None, "sms": None}
        return found

    def _utilisation(self) -> float | None:
        try:
            return self.nvml.nvmlDeviceGetUtilizationRates(self.handle).gpu / 100
        except self.nvml.NVMLError as error:
            self._lost("utilisation", error)
            return None


def idle(watched: dict[str, float | None]) -> float | None:
    """By the finer counter that there is."""
    busy = watched.get("gpm") if watched.get("gpm") is not None else watched.get("nvml")
    return None if busy is None else 1 - busy
