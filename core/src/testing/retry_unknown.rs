//! A mutant: the client resends a request that got no reply.

use std::sync::Arc;

use super::super::{NodeRequest, Quorum};
use crate::{
    process::{driver::Driver, runtime},
    protocol::script::ScriptCall,
    server::{NodeError, NodeErrorKind, SentOn},
};

impl Quorum {
    /// Resends a request until it is answered.
    pub(super) fn insist(self: &Arc<Self>, node: usize, answer: NodeRequest, call: &ScriptCall) -> NodeRequest {
        let (quorum, call) = (self.clone(), call.clone());
        let answer = runtime::spawn_in_background(async move {
            let mut answer = answer.await;
            while matches!(&answer.1, Err(error) if error.kind == NodeErrorKind::Unknown) {
                let limit = quorum.settings.config.reply_timeout;
                answer = quorum.ask_one(node, Driver::Background, call.clone(), limit, SentOn::default()).await;
            }
            answer
        });
        let gone = || Err(NodeError::new(NodeErrorKind::Unknown, "gone"));
        NodeRequest::new(node, Box::pin(async move { answer.await.map_or_else(gone, |(_, answer)| answer) }))
    }
}
