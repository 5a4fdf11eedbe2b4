//! What an acquire, a place in a queue or a tenure is about: a name on the servers, and the primitive that it is used
//! as.

use std::sync::Arc;

use super::{names::Names, primitive::Primitive};

/// A primitive and its names. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) primitive: Primitive,
    pub(crate) names: Arc<Names>,
}

impl Subject {
    pub(crate) fn new(primitive: Primitive, names: Arc<Names>) -> Self {
        Self { primitive, names }
    }

    /// The name, without the client's prefix.
    pub(crate) fn name(&self) -> &str {
        self.names.name()
    }

    /// Whether the servers keep the order of its waiters: only a single node does, since the queues of several would
    /// differ.
    pub(crate) fn has_queue(&self, nodes: usize) -> bool {
        self.primitive.has_queue() && nodes == 1
    }
}
