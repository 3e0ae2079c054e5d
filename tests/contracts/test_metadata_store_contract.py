"""What every implementation of `headrace.ports.MetadataStore` must do."""

from __future__ import annotations

from typing import Any

import pytest


class TestMetadataStore:
    def test_values_are_kept_by_namespace(self, metadata_store: Any) -> None:
        metadata_store.put("a", "k", b"1")
        metadata_store.put("b", "k", b"\x00\xff")
        assert (metadata_store.get("a", "k"), metadata_store.get("b", "k")) == (b"1", b"\x00\xff")
        assert metadata_store.get("c", "k") is None
        assert metadata_store.all("a") == {"k": b"1"}

    def test_a_value_is_replaced_and_deleted(self, metadata_store: Any) -> None:
        metadata_store.put("a", "k", b"1")
        metadata_store.put("a", "k", b"")
        assert metadata_store.get("a", "k") == b""
        metadata_store.delete("a", "k")
        metadata_store.delete("a", "k")
        assert metadata_store.get("a", "k") is None

    def test_several_are_written_all_or_nothing(self, metadata_store: Any) -> None:
        metadata_store.put("a", "z", b"old")
        metadata_store.put_all("a", {"y": b"1", "x": b"2"})
        assert metadata_store.all("a") == {"x": b"2", "y": b"1", "z": b"old"}
        with pytest.raises(TypeError):
            metadata_store.put_all("a", {"x": b"3", "y": "text"})
        assert metadata_store.all("a") == {"x": b"2", "y": b"1", "z": b"old"}
