"""Which modules machine code is made of: every name of a compiled function, followed to its definition."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

#: Decorators and functions that compile.
COMPILING = {"compiled", "compiled_with_notice", "device_function", "inlined", "inline_untyped", "vector_kernel"}
COMPILING_CALLS = COMPILING | {"Compiler.compile", "Compiler.compile_exact"}

Definition = tuple[str, str]  # module, name


class Module:
    """The definitions of a module at its top, and its imports from the package."""

    def __init__(self, path: Path, package: str) -> None:
        self.tree = ast.parse(path.read_text())
        self.nodes: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, Definition] = {}
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
                self.imports |= {alias.asname or alias.name: (str(node.module), alias.name) for alias in node.names}
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.nodes.setdefault(node.name, []).append(node)
            elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
                for target in ast.walk(node):
                    if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store):
                        self.nodes.setdefault(target.id, []).append(node)

    def compiled_names(self) -> set[str]:
        """Names of compiled functions, also imported ones, and names that compiled functions within others use."""
        names = set()
        for name, nodes in self.nodes.items():
            for node in nodes:
                calls = [ast.unparse(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)]
                if not isinstance(node, ast.FunctionDef):
                    names |= {name} if COMPILING & set(calls) else set()
                elif COMPILING & set(map(ast.unparse, node.decorator_list)):
                    names.add(name)
                elif COMPILING_CALLS & set(calls):
                    for part in ast.walk(node):
                        compiles = isinstance(part, ast.Call) and ast.unparse(part.func) in COMPILING_CALLS
                        if compiles or (isinstance(part, ast.FunctionDef) and part is not node):
                            names |= {used for used, _ in _names(part)}
        return names & (self.nodes.keys() | self.imports.keys()) - {"Compiler"}


class Sources:
    """The modules of a package, and the definitions that names in them lead to."""

    def __init__(self, folder: Path) -> None:
        self.modules = {}
        for path in folder.rglob("*.py"):
            name = ".".join([folder.name, *path.relative_to(folder).with_suffix("").parts])
            self.modules[name.removesuffix(".__init__")] = Module(path, folder.name)

    def compiled(self) -> set[Definition]:
        """List the compiled functions, where they are defined."""
        pairs = ((name, root) for name, module in self.modules.items() for root in module.compiled_names())
        return {self.origin(*pair)[-1] for pair in pairs}

    def origin(self, module: str, name: str) -> list[Definition]:
        """Follow a name through imports to its definition: all places on the way."""
        places = [(module, name)]
        while places[-1][0] in self.modules and places[-1][1] in self.modules[places[-1][0]].imports:
            places.append(self.modules[places[-1][0]].imports[places[-1][1]])
        return places

    def reached(self, roots: set[Definition]) -> set[str]:
        """List the modules that decide on the values of names which definitions use, directly or not."""
        todo, seen, modules = [*roots], set(), set()
        while todo:
            definition = todo.pop()
            if definition in seen or definition[0] not in self.modules:
                continue
            seen.add(definition)
            modules.add(definition[0])
            for node in self.modules[definition[0]].nodes.get(definition[1], []):
                for name, attribute in _names(node):
                    places = self.origin(definition[0], name)
                    end = ".".join(places[-1])
                    if end in self.modules:  # `name` is a module, or passes one on
                        places = [*places[1:-1], *self.origin(end, attribute)]
                    modules |= {place for place, _ in places[1:] if place in self.modules}
                    todo.append(places[-1])
        return modules


def _names(node: ast.AST) -> Iterator[Definition]:
    """Names that a definition uses, each with an attribute if that is asked for; annotations are left out."""
    types: set[int] = set()
    for part in ast.walk(node):
        for annotation in (getattr(part, "annotation", None), getattr(part, "returns", None)):
            if annotation is not None:
                types |= set(map(id, ast.walk(annotation)))
    for part in ast.walk(node):
        if id(part) in types:
            continue
        if isinstance(part, ast.Name):
            yield part.id, ""
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            yield part.value.id, part.attr
