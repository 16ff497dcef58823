# Turns plain masters into a group: the same pillar on each, in any order or at once.
#
#   salt-call --local --file-root deploy/states --pillar-root pillar state.apply ha_group
#   salt-ssh 'salt*' state.apply ha_group        # with the pillar below ha_group:
#
# pillar.example beside this says what it takes. docs/containers.md tells more.
{%- set own = salt['pillar.get']('ha_group', {}) %}
{%- set masters = own.get('masters') or {} %}
{%- set here = namespace(name=own.get('name')) %}
{%- for name, address in masters.items() if not here.name and address in grains.get('ipv4', []) + grains.get('ipv6', []) %}
{%-   set here.name = name %}
{%- endfor %}
{%- set here.name = here.name or grains['id'] %}
{%- set folder = own.get('config_dir', '/etc/salt') %}
{%- set state = own.get('state_dir', '/etc/salt/pki/master/ha') %}
{%- set onedir = '/opt/saltstack/salt/bin/python3' %}
{%- set packaged = salt['file.file_exists'](onedir) %}
{%- set python = own.get('python') or (onedir if packaged else grains['pythonexecutable']) %}
{%- set pip = 'salt-pip' if packaged and not own.get('python') else python ~ ' -m pip' %}
{%- set user = own.get('user') or ('salt' if salt['user.info']('salt') else 'root') %}
{%- set port = own.get('port', 4530) %}

{%- set takes = ['masters', 'name', 'secret', 'package', 'force', 'engines', 'ha', 'wait', 'port', 'user',
    'config_dir', 'state_dir', 'python', 'restart'] %}
{%- set unknown = own.keys() | reject('in', takes) | list %}

{%- set problem = '' %}
{%- if unknown %}
{%-   set problem = 'ha_group:' ~ unknown[0] ~ ': no such key; takes ' ~ takes | join(', ') %}
{%- elif own.get('force', False) not in (True, False) %}
{%-   set problem = 'ha_group:force takes true or false' %}
{%- elif masters | length < 2 %}
{%-   set problem = 'ha_group:masters names fewer than two masters: write {m1: 10.0.0.1, m2: 10.0.0.2}' %}
{%- elif here.name not in masters %}
{%-   set problem = 'none of ha_group:masters is this host (' ~ here.name ~ '): add it, or set ha_group:name' %}
{%- elif own.get('secret', '') | string | length < 32 %}
{%-   set problem = 'ha_group:secret needs 32 characters or more, the same on all: openssl rand -hex 32' %}
{%- elif not own.get('package') and salt['cmd.retcode'](python ~ ' -c "import saltext_ha"', ignore_retcode=True) %}
{%-   set problem = 'saltext-ha is not in ' ~ python ~ ': install it, or set ha_group:package to a wheel' %}
{%- endif %}

{%- if problem %}

what ha_group needs:
  test.fail_without_changes:
    - comment: {{ problem | json }}
    - failhard: True

{%- else %}
{%- set urls = [] %}
{%- for address in masters.values() %}
{%-   do urls.append('https://' ~ (('[' ~ address ~ ']') if ':' in address else address) ~ ':' ~ port) %}
{%- endfor %}
{%- set ha = {
    'name': here.name, 'address': masters[here.name], 'port': port, 'masters': urls,
    'secret_file': folder ~ '/ha.secret', 'share_master_key': True,
} %}
{%- do ha.update(own.get('ha') or {}) %}

{%- if own.get('package') %}

saltext-ha:
  cmd.run:
    - name: {{ (pip ~ ' install ' ~ own['package']) | json }}
    - unless: {{ (python ~ ' -c "import saltext_ha"') | json }}
    - require_in:
      - cmd: join the group
{%- endif %}

secret of the group:
  file.managed:
    - name: {{ folder }}/ha.secret
    - contents_pillar: ha_group:secret
    - contents_newline: True
    - user: {{ user }}
    - mode: '0600'
    - show_changes: False

configuration of the group:
  file.serialize:
    - name: {{ folder }}/master.d/ha.conf
    - serializer: yaml
    - makedirs: True
    - user: root
    - mode: '0644'
    - dataset: {{ {'engines': [{'ha': {}}] + (own.get('engines') or []), 'ha': ha} | json }}
    - require:
      - file: secret of the group

# The first of the list founds the group; the others wait until a member lets them in.
join the group:
  cmd.run:
    - name: {{ (python ~ ' -m saltext_ha.cli -c ' ~ folder ~ ' join wait=' ~ own.get('wait', 300)
        ~ (' force=True' if own.get('force') else '') ~ ' && touch ' ~ state ~ '/joined') | json }}
    - creates: {{ state }}/joined
    - require:
      - file: configuration of the group

salt-master:
{%- if own.get('restart') %}
  cmd.run:
    - name: {{ own['restart'] | json }}
    - onchanges:
{%- else %}
  service.running:
    - enable: True
    - watch:
{%- endif %}
      - file: configuration of the group
      - file: secret of the group
      - cmd: join the group
{%- endif %}
