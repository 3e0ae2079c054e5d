"""The first step: what was edited of the application since the last run, and whether what is stored can follow."""

from __future__ import annotations

from dataclasses import replace

from headrace.core.job_plan.draft import Draft, Edit, PlanTerms
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.topology.compatibility import check_compatible, store_forms
from headrace.core.topology.operator_changes import run_operators
from headrace.core.topology.store_changes import databases_of, requested


def edits(draft: Draft, snapshot: Snapshot) -> Draft:
    """Find what was edited; `IncompatibleChangeError` for what the state of the stores cannot follow."""
    terms, edit = draft.terms, edit_of(draft.terms, snapshot)
    check_compatible(edit.carried, edit.forms, terms.topology.inputs, terms.url, terms.stores.drops)
    return replace(draft, edit=edit)


def edit_of(terms: PlanTerms, snapshot: Snapshot) -> Edit:
    """What was edited; serdes of the topology may be open."""
    previous, forms = snapshot.model, store_forms(terms.topology)
    carried = requested(previous, forms, terms.stores)
    before = None if previous is None else snapshot.operators
    databases = databases_of(carried, forms)
    return Edit(previous, carried, forms, databases, run_operators(terms.subs, databases, before), before)
