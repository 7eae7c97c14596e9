"""Run PyTorch's own benchmark, dynamobench (`benchmarks/dynamo/torchbench.py`), on the models of this zoo.

Dynamobench imports its models as `torchbenchmark.models.NAME`, which a checkout of TorchBench has. A finder
(`finder.py`) makes these modules from the zoo's folders, and dynamobench runs unchanged, from a checkout of
pytorch/pytorch that the user names.

- `checkout.py`: the folder of dynamobench in that checkout
- `names.py`: the zoo's models by names of TorchBench
- `finder.py`: the modules that dynamobench imports
- `adapter.py`: a model of the zoo in the form that dynamobench reads
- `launch.py`: the process that runs dynamobench
"""
