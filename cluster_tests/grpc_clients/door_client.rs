// The official gRPC client for Rust, without TLS, which it does not have: `door_client endpoint topic`. What it is told stands
// in originals/doors/grpc_client.py, which also drives DoorClient.java, door_client.go, door_client.js and door_client.py.
//
// Its library has simple consumers alone: `push` receives one message after the other, and leaves one that is to fail
// without an acknowledgement. It can neither hide nor recall.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

const INVISIBLE: Duration = Duration::from_secs(10); // the least that a proxy grants

struct Subscription {
    consumer: SimpleConsumer,
    topic: String,
    group: String,
    filter: FilterExpression,
}

struct Program {
    endpoint: String,
    producer: Producer,
    consumers: Mutex<HashMap<String, Arc<Subscription>>>,
    held: Mutex<HashMap<(String, String), Arc<MessageView>>>,
}

#[tokio::main]
async fn main() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let mut option = ProducerOption::default();
    option.set_topics(vec![arguments[2].as_str()]);
    let mut producer = Producer::new_transaction_producer(option, client_option(&arguments[1]), Box::new(check))?;
    producer.start().await?;
    let program = Arc::new(Program {
        endpoint: arguments[1].clone(),
        producer,
        consumers: Mutex::default(),
        held: Mutex::default(),
    });
    println!("{}", json!({"event": "started"}));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<String> = line.split('\t').map(String::from).collect();
        let told = json!({"event": "failed", "of": words[0], "key": words[1]});
        let program = program.clone();
        let running = tokio::spawn(async move { program.run(&words).await });
        tokio::spawn(async move {
            // The library panics where it cannot connect.
            let error = match running.await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic.to_string(),
            };
            let mut told = told;
            told["error"] = error.into();
            println!("{told}");
        });
    }
    std::process::exit(0); // the consumers would go on
}

impl Program {
    async fn run(&self, words: &[String]) -> Fallible<()> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["send", key, topic, ref values @ ..] => {
                let receipt = self.producer.send(made(key, topic, values, false)?).await?;
                println!("{}", json!({"event": "sent", "key": key, "id": receipt.message_id()}));
            }
            ["transact", key, topic, now, ref values @ ..] => self.transact(key, topic, now, values).await?,
            ["push", topic, group, kind, expression] => {
                let subscription = self.subscribe(topic, group, kind, expression).await?;
                tokio::spawn(async move { subscription.consume().await });
                println!("{}", json!({"event": "consuming", "group": group}));
            }
            ["simple", topic, group, kind, expression] => {
                let subscription = self.subscribe(topic, group, kind, expression).await?;
                self.consumers.lock().unwrap().insert(group.into(), subscription);
                println!("{}", json!({"event": "consuming", "group": group}));
            }
            ["receive", group, count, invisible_ms] => {
                let invisible = Duration::from_millis(invisible_ms.parse()?);
                let views = self.of(group).receive(count.parse()?, invisible).await?;
                println!("{}", json!({"event": "polled", "group": group, "count": self.hold(group, views)}));
            }
            ["ack", key, group] => {
                let view = self.held.lock().unwrap()[&(group.into(), key.into())].clone();
                self.of(group).consumer.ack(&*view).await?;
                println!("{}", json!({"event": "acked", "group": group, "key": key}));
            }
            _ => return Err("no such command".into()),
        }
        Ok(())
    }

    async fn transact(&self, key: &str, topic: &str, now: &str, values: &[&str]) -> Fallible<()> {
        let message = made(key, topic, values, true)?;
        let transaction = self.producer.send_transaction_message(message).await?;
        println!("{}", json!({"event": "sent", "key": key, "id": transaction.message_id()}));
        match now {
            "commit" => transaction.commit().await?,
            "rollback" => transaction.rollback().await?,
            _ => (),
        }
        println!("{}", json!({"event": "ended", "key": key, "state": now}));
        Ok(())
    }

    async fn subscribe(&self, topic: &str, group: &str, kind: &str, expression: &str) -> Fallible<Arc<Subscription>> {
        let mut option = SimpleConsumerOption::default();
        option.set_consumer_group(group);
        option.set_topics(vec![topic]);
        let mut consumer = SimpleConsumer::new(option, client_option(&self.endpoint))?;
        consumer.start().await?;
        let kind = if kind == "SQL92" { FilterType::Sql } else { FilterType::Tag };
        let filter = FilterExpression::new(kind, expression);
        Ok(Arc::new(Subscription { consumer, topic: topic.into(), group: group.into(), filter }))
    }

    fn of(&self, group: &str) -> Arc<Subscription> {
        self.consumers.lock().unwrap()[group].clone()
    }

    fn hold(&self, group: &str, views: Vec<MessageView>) -> usize {
        let count = views.len();
        for view in views {
            println!("{}", received(group, &view, false));
            self.held.lock().unwrap().insert((group.into(), view.keys()[0].clone()), Arc::new(view));
        }
        count
    }
}

impl Subscription {
    async fn receive(&self, count: i32, invisible: Duration) -> Fallible<Vec<MessageView>> {
        Ok(self.consumer.receive_with(&self.topic, &self.filter, count, invisible).await?)
    }

    async fn consume(&self) {
        let mut deliveries: HashMap<String, u32> = HashMap::new();
        loop {
            let Ok(views) = self.receive(1, INVISIBLE).await else {
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            };
            for view in views {
                let count = deliveries.entry(view.keys()[0].clone()).or_default();
                *count += 1;
                let fails = *count <= view.properties().get("fails").map_or(0, |value| value.parse().unwrap());
                println!("{}", received(&self.group, &view, fails));
                if !fails {
                    let _ = self.consumer.ack(&view).await; // else it comes again
                }
            }
        }
    }
}

fn client_option(endpoint: &str) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(endpoint);
    option.set_enable_tls(false);
    option.set_timeout(Duration::from_secs(10));
    option
}

/// `values` are NAME=VALUE: tag, group and at_ms of the message itself, or properties.
fn made(key: &str, topic: &str, values: &[&str], in_transaction: bool) -> Fallible<impl Message> {
    let mut builder = MessageBuilder::builder().set_topic(topic).set_keys(vec![key]);
    builder = builder.set_body(format!("{key} body").into_bytes());
    if in_transaction {
        builder = builder.enable_transaction();
    }
    let mut properties = HashMap::new();
    for (name, value) in values.iter().filter_map(|word| word.split_once('=')) {
        builder = match name {
            "tag" => builder.set_tag(value),
            "group" => builder.set_message_group(value),
            "at_ms" => builder.set_delivery_timestamp(value.parse::<i64>()? / 1000), // it knows whole seconds
            _ => {
                properties.insert(name, value);
                builder
            }
        };
    }
    Ok(builder.set_properties(properties).build()?)
}

fn check(_: String, view: MessageView) -> TransactionResolution {
    let decision = &view.properties()["decision"];
    println!(
        "{}",
        json!({"event": "checked", "key": view.keys()[0], "body": body_of(&view), "topic": view.topic(), "decision": decision})
    );
    if decision == "commit" {
        TransactionResolution::COMMIT
    } else {
        TransactionResolution::ROLLBACK
    }
}

fn received(group: &str, view: &MessageView, fails: bool) -> Value {
    json!({
        "event": "received",
        "group": group,
        "key": view.keys()[0],
        "body": body_of(view),
        "id": view.message_id(),
        "tag": view.tag().unwrap_or(""),
        "message_group": view.message_group().unwrap_or(""),
        "attempt": view.delivery_attempt(),
        "topic": view.topic(),
        "fails": fails,
    })
}

fn body_of(view: &MessageView) -> String {
    String::from_utf8_lossy(view.body()).into_owned()
}
