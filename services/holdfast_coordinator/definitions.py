"""Compiled definitions, kept for as long as the process lives: a stored version never changes."""

from holdfast.contracts.definitions import compile_definition
from holdfast.core.definition import Definition
from holdfast.core.errors import Corrupt
from holdfast.store.protocol import CoordinatorStore


class DefinitionCache:
    def __init__(self, store: CoordinatorStore) -> None:
        self._store = store
        self._compiled: dict[tuple[str, str, int], Definition] = {}

    def get(self, namespace: str, workflow: str, version: int) -> Definition | None:
        return self._compiled.get((namespace, workflow, version))

    async def load(self, namespace: str, workflow: str, version: int) -> Definition | None:
        found = self._compiled.get((namespace, workflow, version))
        if found is not None:
            return found
        stored = await self._store.definition(namespace, workflow, version)
        if stored is None:
            return None
        try:
            found = compile_definition(stored.body)
        except Exception as problem:
            raise Corrupt(
                f"definition {namespace}/{workflow} version {version} does not compile: {problem}"
            ) from problem
        self._compiled[(namespace, workflow, version)] = found
        return found
