//! Batches of requests to a node: the commands that they form, and each request's part of the
//! replies.

use std::sync::Arc;

use redis::{Cmd, Pipeline, Value};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate_core::algorithm::time::Timestamp;

use super::failure::CallFailure;
use crate::redis::script::ScriptNeeds;
use crate::redis::script::decode::{self, ScriptReply};
use crate::redis::script::encode::ScriptRequest;

/// Minimum TTL of keys in ms if time is given: virtual time may run slower than the server's.
const GIVEN_TIME_TTL_MS: u64 = 3_600_000;

/// Result of a request to a node.
pub(in crate::redis) type Reply = Result<ScriptReply, CallFailure>;

/// Options for sending a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::redis) struct SendOptions {
    /// 0 if one node has all slots.
    pub(in crate::redis) slot: u16,
    /// Set to send the script's text, because the node does not know its digest.
    pub(in crate::redis) by_text: bool,
    /// Set if the node is importing the slot: the command is preceded by `ASKING`.
    pub(in crate::redis) asking: bool,
    /// Set to send the request in a command of its own.
    pub(in crate::redis) alone: bool,
}

/// A request waiting for its reply.
#[derive(Debug)]
pub(in crate::redis) struct PendingCall {
    pub(in crate::redis) request: Arc<ScriptRequest>,
    pub(in crate::redis) options: SendOptions,
    pub(in crate::redis) begun: Instant,
    pub(in crate::redis) deadline: Instant,
    reply: Option<oneshot::Sender<Reply>>,
}

impl PendingCall {
    /// Creates a pending request and the receiver of its reply.
    pub(in crate::redis) fn new(
        request: Arc<ScriptRequest>,
        options: SendOptions,
        deadline: Instant,
    ) -> (Self, oneshot::Receiver<Reply>) {
        let (reply, replied) = oneshot::channel();
        (Self { request, options, begun: Instant::now(), deadline, reply: Some(reply) }, replied)
    }

    /// Returns `true` if the caller is still waiting.
    pub(super) fn is_wanted(&self) -> bool {
        self.reply.as_ref().is_some_and(|reply| !reply.is_closed())
    }

    /// Sends the reply, unless one has been sent already.
    pub(in crate::redis) fn answer(&mut self, reply: Reply) {
        if let Some(waiting) = self.reply.take() {
            // If the caller is gone, it has counted its charges as unknown.
            let _ = waiting.send(reply);
        }
    }
}

/// The slots of the requests that may share a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redis) enum CommandSlots {
    /// One.
    One,
    /// Any, if the script supports that: the node refuses keys of slots that it does not serve.
    Any,
}

/// Requests that are sent together.
#[derive(Debug)]
pub(in crate::redis) struct Batch(Vec<ScriptCall>);

/// One call of a script that runs its requests in order. They are of one slot, or of several if the
/// node allows that.
#[derive(Debug)]
struct ScriptCall {
    options: SendOptions,
    needs: ScriptNeeds,
    given: Option<Timestamp>,
    calls: Vec<PendingCall>,
}

impl ScriptCall {
    fn of(call: PendingCall) -> Self {
        let ScriptRequest { needs, given, .. } = *call.request;
        Self { options: call.options, needs, given, calls: vec![call] }
    }

    /// Returns `true` if a request can join this command: one of another slot only if its script
    /// supports that.
    fn fits(&self, more: &PendingCall, slots: CommandSlots) -> bool {
        let is_judged_alike =
            self.given == more.request.given && self.needs.and(more.request.needs).is_some();
        let any_slot = slots == CommandSlots::Any && self.needs.decides() && !more.options.asking;
        let slot = if any_slot { self.options.slot } else { more.options.slot };
        self.options == SendOptions { slot, ..more.options }
            && !more.options.alone
            && is_judged_alike
    }

    /// Returns `true` if a request's keys are in the slot that the node checks.
    fn is_declared(&self, call: &PendingCall) -> bool {
        call.options.slot == self.options.slot
    }

    /// Returns the requests whose keys are in that slot: they precede all others.
    fn declared(&self) -> impl Iterator<Item = &ScriptRequest> {
        self.calls.iter().take_while(|call| self.is_declared(call)).map(|call| &*call.request)
    }

    fn add_to(&self, pipeline: &mut Pipeline) {
        if self.options.asking {
            pipeline.cmd("ASKING");
        }
        let script = self.needs.script();
        let requests = self.calls.iter().map(|call| &*call.request);
        let mut command = if self.options.by_text {
            call_of("EVAL", &script.text)
        } else {
            call_of("EVALSHA", &script.sha)
        };
        command.arg(self.declared().map(|request| request.keys.len()).sum::<usize>());
        for key in self.declared().flat_map(|request| &request.keys) {
            command.arg(key.as_slice());
        }
        match self.given {
            None => command.arg("").arg(1),
            Some(now) => command.arg(now.as_micros()).arg(GIVEN_TIME_TTL_MS),
        };
        if self.needs.decides() {
            let texts: Vec<&[u8]> = requests.map(|request| request.text.as_slice()).collect();
            command.arg(texts.concat());
            let others = self.calls.iter().skip_while(|call| self.is_declared(call));
            for key in others.flat_map(|call| &call.request.keys) {
                command.arg(key.as_slice());
            }
        } else {
            for request in requests {
                command.arg(request.text.as_slice());
            }
        }
        pipeline.add_command(command);
    }

    /// Sends all requests their parts of a reply.
    fn answer(&mut self, reply: Result<Value, CallFailure>) {
        let failure = match reply {
            Ok(Value::BulkString(bytes)) => {
                let counts = self.calls.iter().map(|call| call.request.checks.into());
                match decode::read(&bytes, counts) {
                    Some(answers) => {
                        for (call, reply) in self.calls.iter_mut().zip(answers) {
                            let must_be_alone = reply == ScriptReply::Alone;
                            let failure = must_be_alone.then_some(CallFailure::RetryAlone);
                            call.answer(failure.map_or(Ok(reply), Err));
                        }
                        return;
                    }
                    None => CallFailure::of_reply(Value::BulkString(bytes)),
                }
            }
            Ok(other) => CallFailure::of_reply(other),
            Err(failure) => failure,
        };
        let may_be_of_another =
            matches!(failure, CallFailure::Forbidden(_)) && self.calls.len() > 1;
        let failure = if may_be_of_another { CallFailure::RetryAlone } else { failure };
        let is_of_slot = matches!(failure, CallFailure::Moved(_) | CallFailure::Ask(_));
        let slot = self.options.slot;
        for call in &mut self.calls {
            let is_concerned = !is_of_slot || call.options.slot == slot;
            call.answer(Err(if is_concerned { failure.clone() } else { CallFailure::RetryAlone }));
        }
    }
}

impl Batch {
    /// Groups requests into commands.
    pub(in crate::redis) fn of(
        calls: impl IntoIterator<Item = PendingCall>,
        slots: CommandSlots,
    ) -> Self {
        let mut commands: Vec<ScriptCall> = Vec::new();
        for more in calls {
            match commands.iter_mut().rev().find(|command| command.fits(&more, slots)) {
                Some(command) => {
                    command.needs = command.needs.and(more.request.needs).unwrap_or(command.needs);
                    command.calls.push(more);
                }
                None => commands.push(ScriptCall::of(more)),
            }
        }
        Self(commands)
    }

    /// Returns the pipeline to send.
    pub(super) fn pipeline(&self) -> Pipeline {
        let mut pipeline = Pipeline::with_capacity(self.0.len());
        self.0.iter().for_each(|command| command.add_to(&mut pipeline));
        pipeline
    }

    /// Returns the number of replies to expect.
    pub(in crate::redis) fn replies(&self) -> usize {
        self.0.iter().map(|command| if command.options.asking { 2 } else { 1 }).sum()
    }

    /// Sends each request its part of the replies.
    pub(in crate::redis) fn answer(&mut self, replies: Result<Vec<Value>, CallFailure>) {
        let mut replies = replies.map(Vec::into_iter);
        for command in &mut self.0 {
            let reply = match &mut replies {
                Ok(replies) => {
                    replies.nth(usize::from(command.options.asking)).ok_or(CallFailure::Lost)
                }
                Err(failure) => Err(failure.clone()),
            };
            command.answer(reply);
        }
    }

    /// Returns all requests.
    pub(in crate::redis) fn calls(&mut self) -> impl Iterator<Item = &mut PendingCall> {
        self.0.iter_mut().flat_map(|command| &mut command.calls)
    }
}

fn call_of(name: &str, script: &str) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script);
    command
}
