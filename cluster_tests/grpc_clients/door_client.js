// The official gRPC client for Node, without TLS as it is by itself: `door_client.js endpoint topic`. What it is told stands in
// originals/doors/grpc_client.py, which also drives DoorClient.java, door_client.py and door_client.go.
'use strict';

const readline = require('readline');
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js');

const [endpoints, topic] = process.argv.slice(2);
const { ACCESS_KEY: accessKey, SECRET_KEY: accessSecret } = process.env;
const sessionCredentials = accessKey ? { accessKey, accessSecret } : undefined;
const options = { endpoints, namespace: '', requestTimeout: 10000, sessionCredentials };
const recallHandles = new Map();
const deliveries = new Map();
const consumers = new Map();
const held = new Map();

function tell(event) {
  console.log(JSON.stringify(event));
}

function received(group, m, fails) {
  tell({ event: 'received', group, key: m.keys[0], body: m.body.toString(), id: m.messageId, tag: m.tag, message_group: m.messageGroup,
    attempt: m.deliveryAttempt, topic: m.topic, fails });
}

// Words are NAME=VALUE: tag, group and at_ms of the message itself, or properties.
function message(key, to, words) {
  const made = { topic: to, keys: [key], body: Buffer.from(`${key} body`), properties: new Map() };
  for (const word of words) {
    const at = word.indexOf('=');
    const [name, value] = [word.slice(0, at), word.slice(at + 1)];
    if (name === 'tag') made.tag = value;
    else if (name === 'group') made.messageGroup = value;
    else if (name === 'at_ms') made.deliveryTimestamp = new Date(Number(value));
    else made.properties.set(name, value);
  }
  return made;
}

const checker = {
  async check(m) {
    const decision = m.properties.get('decision');
    tell({ event: 'checked', key: m.keys[0], body: m.body.toString(), topic: m.topic, decision });
    return decision === 'commit' ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
  },
};
const producer = new Producer({ ...options, topics: [topic], maxAttempts: 1, checker }); // a key stands for one send

function sent(key, receipt) {
  recallHandles.set(key, receipt.recallHandle);
  tell({ event: 'sent', key, id: receipt.messageId });
}

function filter(to, kind, expression) {
  return new Map([[to, new FilterExpression(expression, kind === 'SQL92' ? FilterType.SQL : FilterType.TAG)]]);
}

async function start(consumer, group) {
  consumers.set(group, consumer);
  await consumer.startup();
  tell({ event: 'consuming', group });
}

const commands = {
  async send(key, to, ...words) {
    sent(key, await producer.send(message(key, to, words)));
  },
  async transact(key, to, now, ...words) {
    const transaction = producer.beginTransaction();
    sent(key, await producer.send(message(key, to, words), transaction));
    if (now === 'commit') await transaction.commit();
    else if (now === 'rollback') await transaction.rollback();
    tell({ event: 'ended', key, state: now });
  },
  async recall(key, to) {
    await producer.recallMessage(to, recallHandles.get(key));
    tell({ event: 'recalled', key });
  },
  async push(to, group, kind, expression) {
    const consume = async m => {
      const count = (deliveries.get(`${group}\t${m.keys[0]}`) ?? 0) + 1;
      deliveries.set(`${group}\t${m.keys[0]}`, count);
      const fails = count <= Number(m.properties.get('fails') ?? 0);
      received(group, m, fails);
      return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    };
    const subscriptions = filter(to, kind, expression);
    await start(new PushConsumer({ ...options, consumerGroup: group, subscriptions, messageListener: { consume } }), group);
  },
  async simple(to, group, kind, expression) {
    const subscriptions = filter(to, kind, expression);
    await start(new SimpleConsumer({ ...options, consumerGroup: group, subscriptions, awaitDuration: 6000 }), group);
  },
  async receive(group, count, invisible) {
    const messages = await consumers.get(group).receive(Number(count), Number(invisible));
    for (const m of messages) {
      held.set(`${group}\t${m.keys[0]}`, m);
      received(group, m, false);
    }
    tell({ event: 'polled', group, count: messages.length });
  },
  async ack(key, group) {
    await consumers.get(group).ack(held.get(`${group}\t${key}`));
    tell({ event: 'acked', group, key });
  },
  async hide(key, group, invisible) {
    await consumers.get(group).changeInvisibleDuration(held.get(`${group}\t${key}`), Number(invisible));
    tell({ event: 'hidden', group, key });
  },
};

async function main() {
  await producer.startup();
  tell({ event: 'started' });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split('\t');
    commands[command](...words).catch(error => tell({ event: 'failed', of: command, key: words[0], error: String(error) }));
  }
  process.exit(0);
}

main();
