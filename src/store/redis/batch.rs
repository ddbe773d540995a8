//! Batches of requests to a node: the commands that they form, and each request's part of the
//! replies.

use std::sync::Arc;

use redis::{Cmd, Pipeline, Value};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::decode::{self, ScriptReply};
use super::encode::ScriptRequest;
use super::failure::CallFailure;
use super::script::ScriptNeeds;
use crate::algorithm::time::Timestamp;

/// Minimum TTL of keys in ms if time is given: virtual time may run slower than the server's.
const GIVEN_TIME_TTL_MS: u64 = 3_600_000;

/// Result of a request to a node.
pub(super) type Reply = Result<ScriptReply, CallFailure>;

/// Options for sending a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct How {
    /// 0 if one node has all slots.
    pub(super) slot: u16,
    /// Set to send the script's text, because the node does not know its digest.
    pub(super) by_text: bool,
    /// Set if the node is importing the slot: the command is preceded by `ASKING`.
    pub(super) asking: bool,
    /// Set to send the request in a command of its own.
    pub(super) alone: bool,
}

/// A request waiting for its reply.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) question: Arc<ScriptRequest>,
    pub(super) how: How,
    pub(super) begun: Instant,
    pub(super) deadline: Instant,
    reply: Option<oneshot::Sender<Reply>>,
}

impl PendingCall {
    /// Creates a pending request and the receiver of its reply.
    pub(super) fn new(question: Arc<ScriptRequest>, how: How, deadline: Instant) -> (Self, oneshot::Receiver<Reply>) {
        let (reply, replied) = oneshot::channel();
        (Self { question, how, begun: Instant::now(), deadline, reply: Some(reply) }, replied)
    }

    /// Returns `true` if the caller is still waiting.
    pub(super) fn is_wanted(&self) -> bool {
        self.reply.as_ref().is_some_and(|reply| !reply.is_closed())
    }

    /// Sends the reply, unless one has been sent already.
    pub(super) fn answer(&mut self, reply: Reply) {
        if let Some(waiting) = self.reply.take() {
            // If the caller is gone, it has counted its charges as unknown.
            let _ = waiting.send(reply);
        }
    }
}

/// Requests that are sent together.
#[derive(Debug)]
pub(super) struct Batch(Vec<ScriptCall>);

/// One call of a script that runs its requests in order. They are of one slot, or of several if the
/// node allows that.
#[derive(Debug)]
struct ScriptCall {
    how: How,
    needs: ScriptNeeds,
    given: Option<Timestamp>,
    asked: Vec<PendingCall>,
}

impl ScriptCall {
    fn of(asked: PendingCall) -> Self {
        let ScriptRequest { needs, given, .. } = *asked.question;
        Self { how: asked.how, needs, given, asked: vec![asked] }
    }

    /// Returns `true` if a request can join this command; with `of_any_slot`, one of another slot
    /// can join too, if its script supports that.
    fn fits(&self, more: &PendingCall, of_any_slot: bool) -> bool {
        let is_judged_alike = self.given == more.question.given && self.needs.and(more.question.needs).is_some();
        let any_slot = of_any_slot && self.needs.is_fast() && !more.how.asking;
        let slot = if any_slot { self.how.slot } else { more.how.slot };
        self.how == How { slot, ..more.how } && !more.how.alone && is_judged_alike
    }

    /// Returns `true` if a request's keys are in the slot that the node checks.
    fn is_declared(&self, asked: &PendingCall) -> bool {
        asked.how.slot == self.how.slot
    }

    fn add_to(&self, pipeline: &mut Pipeline) {
        if self.how.asking {
            pipeline.cmd("ASKING");
        }
        let script = self.needs.script();
        let questions = self.asked.iter().map(|asked| &*asked.question);
        let mut command =
            if self.how.by_text { call_of("EVAL", &script.text) } else { call_of("EVALSHA", &script.sha) };
        let declared = || self.asked.iter().take_while(|asked| self.is_declared(asked)).map(|asked| &*asked.question);
        command.arg(declared().map(|question| question.keys.len()).fold(0, usize::saturating_add));
        for key in declared().flat_map(|question| &question.keys) {
            command.arg(key.as_slice());
        }
        match self.given {
            None => command.arg("").arg(1),
            Some(now) => command.arg(now.as_micros()).arg(GIVEN_TIME_TTL_MS),
        };
        if self.needs.is_fast() {
            let texts: Vec<&[u8]> = questions.map(|question| question.text.as_slice()).collect();
            command.arg(texts.concat());
            let others = self.asked.iter().skip_while(|asked| self.is_declared(asked));
            for key in others.flat_map(|asked| &asked.question.keys) {
                command.arg(key.as_slice());
            }
        } else {
            for question in questions {
                command.arg(question.text.as_slice());
            }
        }
        pipeline.add_command(command);
    }

    /// Sends all requests their parts of a reply.
    fn answer(&mut self, reply: Result<Value, CallFailure>) {
        let failure = match reply {
            Ok(Value::BulkString(bytes)) => {
                let counts = self.asked.iter().map(|asked| asked.question.checks.into());
                match decode::read(&bytes, counts) {
                    Some(answers) => {
                        self.asked.iter_mut().zip(answers).for_each(|(asked, said)| asked.answer(Ok(said)));
                        return;
                    }
                    None => CallFailure::of_reply(Value::BulkString(bytes)),
                }
            }
            Ok(other) => CallFailure::of_reply(other),
            Err(failure) => failure,
        };
        let may_be_of_another = matches!(failure, CallFailure::Forbidden(_)) && self.asked.len() > 1;
        let failure = if may_be_of_another { CallFailure::InCompany } else { failure };
        let is_of_slot = matches!(failure, CallFailure::Moved(_) | CallFailure::Ask(_));
        let slot = self.how.slot;
        for asked in &mut self.asked {
            let is_told_of = !is_of_slot || asked.how.slot == slot;
            asked.answer(Err(if is_told_of { failure.clone() } else { CallFailure::InCompany }));
        }
    }
}

impl Batch {
    /// Groups requests into commands; with `of_any_slot`, requests of several slots share a command
    /// if their script supports that.
    pub(super) fn of(asked: impl IntoIterator<Item = PendingCall>, of_any_slot: bool) -> Self {
        let mut commands: Vec<ScriptCall> = Vec::new();
        for more in asked {
            match commands.iter_mut().rev().find(|command| command.fits(&more, of_any_slot)) {
                Some(command) => {
                    command.needs = command.needs.and(more.question.needs).unwrap_or(command.needs);
                    command.asked.push(more);
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
    pub(super) fn replies(&self) -> usize {
        self.0.iter().map(|command| if command.how.asking { 2 } else { 1 }).fold(0, usize::saturating_add)
    }

    /// Sends each request its part of the replies.
    pub(super) fn answer(&mut self, replies: Result<Vec<Value>, CallFailure>) {
        let mut replies = replies.map(Vec::into_iter);
        for command in &mut self.0 {
            let reply = match &mut replies {
                Ok(replies) => replies.nth(usize::from(command.how.asking)).ok_or(CallFailure::Lost),
                Err(failure) => Err(failure.clone()),
            };
            command.answer(reply);
        }
    }

    /// Returns all requests.
    pub(super) fn asked(&mut self) -> impl Iterator<Item = &mut PendingCall> {
        self.0.iter_mut().flat_map(|command| &mut command.asked)
    }
}

fn call_of(name: &str, script: &str) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script);
    command
}
