//! Two answers of a record, of which one is preferred, and what is asked.

use serde_json::Value;

use crate::chat::Conversation;
use crate::error::TextError;
use crate::example::Example;
use crate::example::fields::Fields;

/// What Anthropic's texts of conversations write before the assistant's turns.
const ASSISTANT: &str = "\n\nAssistant:";

impl Fields<'_> {
    /// Two answers, with what is asked: a field of its own, or what both begin with.
    pub(crate) fn pair(&self, has_template: bool) -> Result<Example, TextError> {
        let chosen = self.list_or_text("chosen", self.required("chosen")?)?;
        let rejected = self.list_or_text("rejected", self.required("rejected")?)?;
        let (chosen, rejected) = (&*chosen, &*rejected);
        // A conversation beside them is what is asked, as LLaMA-Factory has it; not where it is the chosen one again.
        let beside = ["conversations", "messages"].into_iter();
        let mut beside = beside
            .filter_map(|name| Some((name, self.said(name)?)))
            .filter(|(_, turns)| *turns != chosen);
        let asked = match beside.next() {
            Some((name, turns)) => Some((name, self.conversation_of(name, turns)?)),
            None => match self.said("prompt") {
                None => None,
                Some(prompt) => {
                    let prompt = self.list_or_text("prompt", prompt)?;
                    match &*prompt {
                        Value::String(_) => None,
                        turns => Some(("prompt", self.conversation_of("prompt", turns)?)),
                    }
                }
            },
        };
        if let Some(asked) = asked {
            let of = |name: &str, answer: &Value| match answer {
                Value::String(text) => {
                    let message = serde_json::json!([{"role": "assistant", "content": text}]);
                    self.answered(asked.clone(), name, &message)
                }
                turns => self.answered(asked.clone(), name, turns),
            };
            let both = [of("chosen", chosen)?, of("rejected", rejected)?];
            self.check_counted(&both)?;
            return Ok(pair_of(both.map(Example::Chat)));
        }
        if let (Value::String(chosen), Value::String(rejected)) = (chosen, rejected) {
            return self.pair_of_texts(chosen, rejected, has_template);
        }
        self.pair_of_lists(chosen, rejected)
    }

    fn pair_of_texts(
        &self,
        chosen: &str,
        rejected: &str,
        has_template: bool,
    ) -> Result<Example, TextError> {
        if self.said("instruction").is_some() {
            let of = |answer| self.instruction(has_template, answer);
            return Ok(pair_of([of("chosen")?, of("rejected")?].map(all_asked)));
        }
        self.refuse_beside_texts("texts")?;
        let of = |prompt: &str, completion: &str| Example::Completion {
            prompt: prompt.to_owned(),
            completion: completion.to_owned(),
        };
        if let Some(prompt) = self.get("prompt").and_then(Value::as_str) {
            return Ok(pair_of([chosen, rejected].map(|answer| of(prompt, answer))));
        }
        let same = chosen.char_indices().zip(rejected.chars());
        let same = same.take_while(|((_, a), b)| a == b).last();
        let mut asked = same.map_or(0, |((at, c), _)| at + c.len_utf8());
        // A space before a word belongs to it.
        if chosen[..asked].ends_with(' ') {
            asked -= 1;
        }
        let prompt = &chosen[..asked];
        let differs = [chosen, rejected]
            .iter()
            .all(|text| text.contains(ASSISTANT))
            && !prompt.contains(ASSISTANT);
        if prompt.trim().is_empty() || differs {
            let problem = "chosen and rejected do not begin with the same question";
            let hint = "add a field prompt, or use --map prompt=FIELD";
            return Err(self.bad(problem).hinted(hint));
        }
        Ok(pair_of(
            [chosen, rejected].map(|text| of(prompt, &text[asked..])),
        ))
    }

    /// Two conversations that begin with the same messages.
    fn pair_of_lists(&self, chosen: &Value, rejected: &Value) -> Result<Example, TextError> {
        let mut both = [
            self.conversation_of("chosen", chosen)?,
            self.conversation_of("rejected", rejected)?,
        ];
        let pairs = both[0].messages.iter().zip(&both[1].messages);
        let asked = pairs.take_while(|(a, b)| a == b).count();
        for (conversation, name) in both.iter().zip(["chosen", "rejected"]) {
            let is_same = both[0].messages == both[1].messages;
            let answer = conversation.messages.get(asked);
            let role = answer.map(|message| message["role"].as_str().unwrap_or_default());
            let problem = match role {
                Some("assistant") if asked > 0 => continue,
                None if is_same => continue,
                Some("assistant") if self.said("prompt").is_some() => {
                    let problem = "prompt is a text, and chosen and rejected are lists of messages";
                    let hint = "make prompt a list of messages too, or chosen and rejected texts";
                    return Err(self.bad(problem).hinted(hint));
                }
                Some("assistant") => {
                    "chosen and rejected begin with an assistant turn: there is no prompt"
                        .to_owned()
                }
                Some(role) => format!(
                    "chosen and rejected ask different questions: they differ at message {}, whose role is {role}",
                    asked + 1
                ),
                None => format!("{name} ends before its answer"),
            };
            let hint = "both begin with the same messages, up to where an answer is another";
            return Err(self.bad(problem).hinted(hint));
        }
        self.check_told(&both[0].messages[..asked])?;
        for conversation in &mut both {
            conversation.left_out[..asked].fill(true);
            conversation.asked = Some(asked);
        }
        self.check_counted(&both)?;
        Ok(pair_of(both.map(Example::Chat)))
    }

    /// Of an answer in a pair every message counts.
    fn check_counted(&self, both: &[Conversation; 2]) -> Result<(), TextError> {
        let is_left_out = |conversation: &Conversation| {
            let asked = conversation.asked.unwrap_or(0);
            conversation.left_out[asked..].contains(&true)
        };
        if both.iter().any(is_left_out) {
            let problem = "a message of an answer is not to count, which pairs have no place for";
            return Err(self
                .bad(problem)
                .hinted("remove weight, train and loss from its messages"));
        }
        Ok(())
    }

    /// A text beside conversations says once more what is asked.
    fn check_told(&self, asked: &[Value]) -> Result<(), TextError> {
        let Some(Value::String(prompt)) = self.said("prompt") else {
            return Ok(());
        };
        let is_same = |message: &Value| {
            let content = message["content"].as_str().unwrap_or_default().trim();
            !content.is_empty() && prompt.contains(content)
        };
        if asked.iter().any(is_same) {
            return Ok(());
        }
        let problem = "prompt is none of the messages that chosen and rejected begin with";
        Err(self
            .bad(problem)
            .hinted("remove it, or remove the prompt from chosen and rejected"))
    }
}

fn pair_of(both: [Example; 2]) -> Example {
    Example::Pair(Box::new(both))
}

/// An answer with all before it as what is asked.
fn all_asked(example: Example) -> Example {
    let Example::Chat(conversation) = example else {
        return example;
    };
    let asked = conversation.messages.len() - 1;
    let mut left_out = conversation.left_out;
    left_out[..asked].fill(true);
    Example::Chat(Conversation {
        asked: Some(asked),
        left_out,
        ..conversation
    })
}
