//! `updraft chat`: a conversation with a running server from the terminal.
//!
//! Reads lines, prints answers as they come. On a terminal it prompts; in a pipe only answers go to standard
//! output, so `echo question | updraft chat` does what one expects. Knows the OpenAI API and nothing else
//! of the server.

mod client;
mod stream;

use std::io::{BufRead, IsTerminal, Write};

use anyhow::Result;
use clap::Args;

use crate::config::environment;
use client::{Client, Message};

const HELP: &str = "\
Commands: /clear forgets the conversation, /exit (or Ctrl-D) leaves, /help shows this.";

/// Options of `updraft chat`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ChatOptions {
    /// One question to ask; the answer is printed and the command ends. Without it, lines are read.
    #[arg(value_name = "QUESTION")]
    pub question: Option<String>,

    /// Address of the server.
    #[arg(long, value_name = "URL", env = environment::URL, default_value = "http://127.0.0.1:8000")]
    pub url: String,

    /// Model to ask. Default: the first one that the server lists.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,

    /// System prompt.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,

    /// Key that the server wants. Default: `UPDRAFT_API_KEY`, `VLLM_API_KEY` or `OPENAI_API_KEY`.
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,

    /// Tokens of an answer, at most. Default: what is left of the context.
    #[arg(long, value_name = "TOKENS")]
    pub max_tokens: Option<u32>,

    /// How freely tokens are chosen; 0 always takes the likeliest. Default: the server's.
    #[arg(long, value_name = "T")]
    pub temperature: Option<f32>,
}

const EXAMPLES: &str = "\
Examples:
  updraft chat                                       with the server on this machine
  updraft chat --url http://gpu-1:8000 --system \"Answer in one sentence.\"
  updraft chat \"What is a monad?\"                    one answer
  cat questions.txt | updraft chat --temperature 0   a line, a question";

/// Runs the conversation until the input ends.
pub fn run(options: &ChatOptions) -> Result<()> {
    let client = Client::connect(options)?;
    let stdout = std::io::stdout();
    let mut chat = Chat { client, messages: Vec::new(), system: options.system.clone(), out: stdout.lock() };
    chat.clear();
    if let Some(question) = &options.question {
        return chat.ask(question);
    }
    let stdin = std::io::stdin();
    let interactive = stdin.is_terminal() && stdout_is_terminal();
    if interactive {
        writeln!(chat.out, "{} at {}. {HELP}", chat.client.model(), options.url)?;
    }
    chat.converse(stdin.lock(), interactive)
}

struct Chat<W: Write> {
    client: Client,
    messages: Vec<Message>,
    system: Option<String>,
    out: W,
}

impl<W: Write> Chat<W> {
    fn converse(&mut self, mut input: impl BufRead, interactive: bool) -> Result<()> {
        let mut line = String::new();
        loop {
            if interactive {
                write!(self.out, "> ")?;
                self.out.flush()?;
            }
            line.clear();
            if input.read_line(&mut line)? == 0 {
                break;
            }
            match line.trim() {
                "" => {}
                "/exit" | "/quit" => break,
                "/clear" => self.clear(),
                "/help" => writeln!(self.out, "{HELP}")?,
                question => match self.ask(question) {
                    Ok(()) => {}
                    // At a prompt one can ask again; a pipe must not go on as if nothing had happened.
                    Err(error) if interactive => writeln!(self.out, "error: {error:#}")?,
                    Err(error) => return Err(error),
                },
            }
        }
        if interactive {
            writeln!(self.out)?;
        }
        Ok(())
    }

    /// Asks, prints the answer while it comes, and remembers both.
    fn ask(&mut self, question: &str) -> Result<()> {
        self.messages.push(Message::user(question));
        let out = &mut self.out;
        let answer = self.client.answer(&self.messages, |piece| {
            out.write_all(piece.as_bytes())?;
            out.flush()
        });
        match answer {
            Ok(answer) => {
                writeln!(self.out)?;
                self.messages.push(Message::assistant(&answer));
                Ok(())
            }
            Err(error) => {
                // A question without an answer would confuse the next one.
                self.messages.pop();
                Err(error)
            }
        }
    }

    fn clear(&mut self) {
        self.messages = self.system.iter().map(|text| Message::system(text)).collect();
    }
}

fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

#[cfg(test)]
mod tests;
