"""The header facts that the index keeps, from a model file that was read."""

from __future__ import annotations

from jan_serve.core.listed_model import HeaderFacts
from jan_serve.store.gguf.model_file import ModelFile
from jan_serve.store.gguf.quantisation import quantisation_of


def facts_of(model: ModelFile) -> HeaderFacts:
    """What a list of models shows. The file's name says more about the quantisation than its header, if it says it."""
    return HeaderFacts(
        architecture=model.architecture,
        title=model.name,
        n_ctx_train=model.n_ctx_train,
        n_parameters=model.n_parameters,
        quantisation=quantisation_of(model.path.name) or model.quantisation,
        has_chat_template=model.has_chat_template,
        pooling=model.pooling,
    )
