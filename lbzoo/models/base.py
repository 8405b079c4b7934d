"""What every model of the zoo is: a `keras.Model` with a card, saved as a checkpoint folder and copied as numbers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Union

from lbzoo._keras import Model


class ZooModel(Model):
    """Base of the models; a subclass has `config`, `text`, `card` and `named_weights()`, and says in `__reduce__` how
    it is made anew from configuration and numbers."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "card":  # Keras would wrap its dicts and lists into ones that are not JSON values any more
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def __deepcopy__(self, memo: dict) -> "ZooModel":
        rebuild, arguments = self.__reduce__()
        return rebuild(*copy.deepcopy(arguments, memo))

    def save_pretrained(self, folder: Union[str, Path], **options: Any) -> Path:
        """Write a checkpoint folder; options as in `lbzoo.checkpoint.save`."""
        from lbzoo.checkpoint import save

        return save(self, folder, **options)
