"""An ONNX graph under construction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkprop
from sinkprop.common.arguments import one_of

__all__ = ["ML_OPSET", "OPSET", "Graph", "import_onnx"]

OPSET = 18
ML_OPSET = 5  # version of the operators in ai.onnx.ml, for trees; the first one that sums in double precision
_IR_VERSION = 8
_DTYPES = ("float32", "float64")


class Graph:
    """An ONNX graph under construction. Its values have names, which the methods take and return.

    given  Name of the graph's input, in double precision.
    """

    def __init__(self, dtype: str, name: str, columns: list[int], *, one_query: bool) -> None:
        """Start a graph whose input `name` has the shape (documents, *columns)."""
        one_of("dtype", dtype, _DTYPES)
        self._onnx = import_onnx()
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._outputs: list[Any] = []
        self._opsets = {"": OPSET}
        self._functions: list[Any] = []
        self._n_names = 0
        self.one_query = one_query
        self.rows_name = "documents_of_one_query" if one_query else "documents"
        self.dtype = dtype
        self._input = self._info(name, [self.rows_name, *columns])
        self.given = name if dtype == "float64" else self.cast(name, "float64")

    def _info(self, name: str, shape: list[Any]) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, self._type(self.dtype), shape)

    def _type(self, dtype: str) -> int:
        return int(self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def constant(self, array: Any) -> str:
        """Add an array as a constant in its own dtype, and return its name."""
        name = f"constant_{len(self._constants) + 1}"
        self._constants[name] = self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def double(self, array: NDArray[Any]) -> str:
        """Add an array as a constant, cast it to double precision in the graph, and return the result's name.

        The file stores the array in its own dtype, so float32 weights take half the space of double ones.
        """
        name = self.constant(array)
        return name if array.dtype == np.float64 else self.cast(name, "float64")

    def call(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or self._new_name()
        domain = "ai.onnx.ml" if operator == "TreeEnsemble" else ""
        if domain:
            self._opsets[domain] = ML_OPSET
        make = self._onnx.helper.make_node
        self._nodes.append(make(operator, list(inputs), [name], name=name, domain=domain, **attributes))
        return name

    def mean(self, value: str) -> str:
        """Add the mean over the first axis, which has the size 1 in the result."""
        return self.call("ReduceMean", value, self.constant(np.array(0)), keepdims=1)

    def clip(self, value: str, low: float, high: float) -> str:
        above = self.call("Max", value, self.constant(low))
        return self.call("Min", above, self.constant(high))

    def column(self, value: str) -> str:
        """Add the vector `value` (n,) as a matrix (n, 1)."""
        return self.call("Unsqueeze", value, self.constant(np.array(1)))

    def slice(self, value: str, end: int, axis: int = 0) -> str:
        """Add the entries of `value` before `end` along an axis."""
        ends = (self.constant(np.array(i)) for i in (0, end, axis))
        return self.call("Slice", value, *ends)

    def _new_name(self) -> str:
        self._n_names += 1
        return f"value_{self._n_names}"

    def sorted_order(self, value: str, size: str) -> str:
        """Add the positions that sort a vector in decreasing order; ties keep their order."""
        order, make = self._new_name(), self._onnx.helper.make_node
        self._nodes.append(make("TopK", [value, size], [self._new_name(), order], name=order))
        return order

    def repeat(self, times: int, step: Callable[[str, str], str], start: str) -> str:
        """Add a loop over i = 0, 1, ... whose value x, in double precision, becomes step(i, x).

        `step` adds the nodes of the loop's body. Returns the name of the last x.
        """
        helper, tensor = self._onnx.helper, self._onnx.TensorProto
        count, proceed, state = (self._new_name() for _ in range(3))
        outside, self._nodes = self._nodes, []
        results = self.call("Identity", proceed), step(count, state)
        inside, self._nodes = self._nodes, outside
        info = helper.make_tensor_value_info
        given = [
            info(count, tensor.INT64, []),
            info(proceed, tensor.BOOL, []),
            info(state, tensor.DOUBLE, None),
        ]
        found = [info(results[0], tensor.BOOL, []), info(results[1], tensor.DOUBLE, None)]
        body = helper.make_graph(inside, "body", given, found)
        return self.call("Loop", self.constant(np.array(times)), "", start, body=body)

    def cast(self, value: str, dtype: str, output: str | None = None) -> str:
        return self.call("Cast", value, to=self._type(dtype), output=output)

    def give(self, name: str, value: str, shape: list[Any]) -> None:
        """Make a value the output `name` of the graph, cast to the graph's dtype."""
        self.cast(value, self.dtype, output=name)
        self._outputs.append(self._info(name, shape))

    def merge(self, module: Any, prepared: str) -> str:
        """Insert the graph of the ONNX model `module`, and return the name of its output.

        The value `prepared` becomes the input of the inserted graph.
        """
        prefixed = self._onnx.compose.add_prefix(module, "module_")
        renamed = {prefixed.graph.input[0].name: prepared}
        for node in prefixed.graph.node:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            # PyTorch writes paths of source files into these fields
            node.ClearField("metadata_props")
            node.ClearField("doc_string")
            self._nodes.append(node)
        for tensor in prefixed.graph.initializer:
            self._constants[tensor.name] = tensor
        for entry in prefixed.opset_import:
            self._opsets.setdefault(entry.domain, entry.version)
        self._functions += prefixed.functions
        return str(prefixed.graph.output[0].name)

    def model(self, metadata: dict[str, str]) -> Any:
        helper = self._onnx.helper
        graph = helper.make_graph(
            self._nodes, "sinkprop", [self._input], self._outputs, list(self._constants.values())
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(domain, version) for domain, version in self._opsets.items()],
            functions=self._functions,
            producer_name="sinkprop",
            producer_version=sinkprop.__version__,
        )
        model.ir_version = _IR_VERSION
        helper.set_model_props(model, metadata)
        self._onnx.checker.check_model(model, full_check=True)
        return model


def import_onnx() -> Any:
    """Import onnx, which is an optional dependency."""
    try:
        import onnx
        import onnx.compose
    except ImportError as error:
        raise ImportError('an export to ONNX needs onnx: pip install "sinkprop[onnx]"') from error
    return onnx
