//! The two-phase protocol: a first phase checks and plans, a second phase puts the plan on a stream.
//!
//! Always holds: nothing is computed before the second phase; a plan holds copies of everything the caller
//! passed, so that a captured task can run any number of times; a used-up executor is refused, not run.
//!
//! Refuses to know: which operators there are, and what a stream does with a launch.

pub mod abi;
pub mod phases;
pub mod plan;
pub mod status;

use std::sync::Arc;

use crate::tensor::view::View;
use plan::{Place, Slot, Slots};

/// Tensors of one call, by the slots a plan gave them.
#[derive(Clone, Debug, Default)]
pub struct Views(pub(crate) Vec<View>);

impl std::ops::Index<Slot> for Views {
    type Output = View;
    fn index(&self, slot: Slot) -> &View {
        &self.0[slot.0]
    }
}

impl Views {
    /// Members of a list.
    #[must_use]
    pub fn list(&self, slots: &Slots) -> &[View] {
        self.0.get(slots.0.clone()).unwrap_or_default()
    }

    /// An optional tensor.
    #[must_use]
    pub fn maybe(&self, slot: Option<Slot>) -> Option<&View> {
        slot.and_then(|slot| self.0.get(slot.0))
    }
}

/// The arithmetic of a planned call. An error is an ACL code that shows at the next synchronisation.
pub type Work = Arc<dyn Fn(&Views) -> Result<(), i32> + Send + Sync>;

/// What an `aclOpExecutor` holds.
pub struct Executor {
    pub(crate) operator: &'static str,
    pub(crate) views: Views,
    pub(crate) places: Vec<Place>,
    pub(crate) workspace: u64,
    pub(crate) repeatable: bool,
    pub(crate) work: Work,
}
crate::handle_kind!(Executor, 0x6163_6c65_7865_6375);
