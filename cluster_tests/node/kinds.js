// Timers, delay levels and filters with ali-ons, the remoting client for Node: `kinds.js namesrv group instance`. It knows
// neither transactions nor requests. What it is told stands in originals/kinds_client.py, which also drives java/Kinds.java
// and go/kinds.go.
'use strict';

const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const [namesrv, group, instance] = process.argv.slice(2);
const silent = { info() {}, debug() {}, warn() {}, error: (...parts) => console.error(...parts) };
const { ACCESS_KEY: accessKeyId, SECRET_KEY: accessKeySecret } = process.env; // without them, nothing is signed
// Nobody is asked for the address of a NameServer: it is given.
const options = { nameSrv: namesrv, instanceName: instance, logger: silent, httpclient: {}, accessKeyId, accessKeySecret,
  pollNameServerInteval: 1000, heartbeatBrokerInterval: 1000, rebalanceInterval: 1000 };

function tell(event) {
  console.log(JSON.stringify(event));
}

// Words are properties, NAME=VALUE.
function message(key, topic, words) {
  const made = new Message(topic, '', `body of ${key}`);
  made.keys = [key];
  for (const word of words) {
    const at = word.indexOf('=');
    made.properties[word.slice(0, at)] = word.slice(at + 1);
  }
  return made;
}

async function send(producer, [key, topic, ...properties]) {
  const result = await producer.send(message(key, topic, properties));
  tell({ event: result.sendStatus === 'SEND_OK' ? 'sent' : 'failed', of: 'send', key, status: result.sendStatus,
    queue: result.messageQueue.queueId, offset: result.queueOffset, msg_id: result.msgId });
}

async function consume([topic, consumerGroup, type, expression]) {
  const consumer = new Consumer({ ...options, consumerGroup, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET' });
  consumer.on('error', error => console.error(error));
  consumer.subscribe(topic, type === 'SQL92' ? { expressionType: type, subString: expression } : expression, async m => {
    tell({ event: 'received', group: consumerGroup, key: m.keys, body: m.body.toString(), tag: m.tags, queue: m.queueId,
      offset: m.queueOffset, times: m.reconsumeTimes, born_ms: m.bornTimestamp, stored_ms: m.storeTimestamp });
  });
  await consumer.ready();
  tell({ event: 'consuming', group: consumerGroup });
}

async function main() {
  const producer = new Producer({ ...options, producerGroup: group, retryTimesWhenSendFailed: 0 });
  producer.on('error', error => console.error(error));
  await producer.ready();
  tell({ event: 'started' });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split('\t');
    const done = command === 'send' ? send(producer, words) : consume(words);
    done.catch(error => tell({ event: 'failed', of: command, key: words[0], error: String(error) }));
  }
  process.exit(0);
}

main();
