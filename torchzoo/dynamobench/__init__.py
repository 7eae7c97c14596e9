"""PyTorch's own benchmark, dynamobench (`benchmarks/dynamo/torchbench.py`), on the models of this zoo.

Dynamobench imports its models as `torchbenchmark.models.NAME`, which a checkout of TorchBench has. Here a finder
(`finder.py`) makes these modules from our folders, and dynamobench runs as it is. None of its code is here: users name
a checkout of pytorch/pytorch.

- `checkout.py`: where dynamobench is in that checkout
- `names.py`: which model of ours a name of TorchBench means
- `finder.py`: the modules that dynamobench imports
- `adapter.py`: a model of ours with what dynamobench reads
- `launch.py`: the process that becomes dynamobench
"""
