"""The first step: what was edited of the application since the last run, and whether what is stored can follow."""

from __future__ import annotations

from dataclasses import replace

from headrace.core.job_plan.draft import Draft, Edit, PlanTerms
from headrace.core.job_plan.snapshot import Snapshot
from headrace.core.topology.compatibility import check_compatible, notes, store_forms
from headrace.core.topology.operator_changes import changes_between, run_operators
from headrace.core.topology.store_changes import change_notes, databases_of, requested


def edits(draft: Draft, snapshot: Snapshot) -> Draft:
    """Find what was edited; `IncompatibleChangeError` for what the state of the stores cannot follow."""
    terms, edit = draft.terms, edit_of(draft.terms, snapshot)
    check_compatible(edit.carried, edit.forms, terms.topology.inputs, terms.url, terms.stores.drops)
    stores = (*change_notes(snapshot.model, edit.carried), *notes(edit.carried, edit.forms))
    return replace(draft, edit=edit, notes=(*changes_between(edit.operators_before, edit.operators).notes(), *stores))


def edit_of(terms: PlanTerms, snapshot: Snapshot) -> Edit:
    """What was edited; serdes of the topology may be open."""
    forms = store_forms(terms.topology)
    carried = requested(snapshot.model, forms, terms.stores)
    before = None if snapshot.model is None else snapshot.operators
    databases = databases_of(carried, forms)
    return Edit(carried, forms, databases, run_operators(terms.subs, databases, before), before)
