"""The parties of a study as programs that talk over TLS.

  owners   have a record each; send once, through relays that learn nothing
  servers  hold shares; up to `num_colluding` of them may put together what they
           see, and all follow the protocol
  dealer   (two servers, joint noise) gives the servers keys for noise that no
           party knows; must not collude with a server
  client   asks, and learns noisy counts

Who set up the study, with certificates and tokens, could play any party: it is
trusted not to. What an owner sends is checked for who sent it, not for what it
says: one that does not follow the protocol can change the counts by any number.
What others have sent stays secret whatever owners, relays and clients do.

Modules, in import order: parameters, certificates, channel, enrolment, storage,
inbox, links, wire, noising, server, client, owners, setup.
"""

__all__ = [
    'certificates', 'channel', 'client', 'enrolment', 'inbox', 'links',
    'noising', 'owners', 'parameters', 'server', 'setup', 'storage', 'wire'
]
